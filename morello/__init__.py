"""Morello: turns tensor operations into the provably cheapest C program of a target."""

# Nothing is imported before it is asked for, so that the command can see to Ctrl-C first.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from morello.api import compile, goal, parse, synthesize
    from morello.errors import MorelloError
    from morello.functions import attention, conv2d, einsum, gelu, layer_norm, matmul, softmax
    from morello.goals import Goal
    from morello.search.budget import SearchBudget

    __version__: str

_FUNCTIONS = ["attention", "conv2d", "einsum", "gelu", "layer_norm", "matmul", "softmax"]
__all__ = [
    "Goal",
    "MorelloError",
    "SearchBudget",
    "__version__",
    "attention",
    "compile",
    "conv2d",
    "einsum",
    "gelu",
    "goal",
    "layer_norm",
    "matmul",
    "parse",
    "softmax",
    "synthesize",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'morello' has no attribute {name!r}")
    if name == "__version__":
        from importlib.metadata import version

        value: object = version("morello")
    elif name in _FUNCTIONS:
        from morello import functions

        value = getattr(functions, name)
    else:
        from morello import api

        value = getattr(api, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
