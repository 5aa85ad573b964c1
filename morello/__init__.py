"""Morello: turns tensor operations into the provably cheapest C program of a target."""

# Names are imported at their first use: some are slow to import, and the command line must first handle Ctrl-C.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from morello.api import (
        Goal,
        Kernel,
        MorelloError,
        SearchBudget,
        attention,
        compile,
        conv2d,
        einsum,
        empty,
        gelu,
        goal,
        layer_norm,
        matmul,
        pack,
        parse,
        softmax,
        synthesize,
        unpack,
    )

    __version__: str

__all__ = [
    "Goal",
    "Kernel",
    "MorelloError",
    "SearchBudget",
    "__version__",
    "attention",
    "compile",
    "conv2d",
    "einsum",
    "empty",
    "gelu",
    "goal",
    "layer_norm",
    "matmul",
    "pack",
    "parse",
    "softmax",
    "synthesize",
    "unpack",
]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'morello' has no attribute {name!r}")
    if name == "__version__":
        from importlib.metadata import version

        value: object = version("morello")
    else:
        from morello import api

        value = getattr(api, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
