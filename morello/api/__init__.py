"""The Python API: goals, kernels, and functions on arrays."""

from morello.lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from morello.api.functions import attention, conv2d, einsum, gelu, layer_norm, matmul, softmax
    from morello.api.goals import Goal
    from morello.api.kernel import Kernel
    from morello.api.pipeline import DEFAULT_EXPANSIONS, compile, goal, goal_from, parse, synthesize
    from morello.errors import MorelloError
    from morello.run.arrays import empty, pack, unpack
    from morello.search.budget import SearchBudget

_MODULES = {
    "morello.api.functions": ("attention", "conv2d", "einsum", "gelu", "layer_norm", "matmul", "softmax"),
    "morello.api.goals": ("Goal",),
    "morello.api.kernel": ("Kernel",),
    "morello.api.pipeline": ("DEFAULT_EXPANSIONS", "compile", "goal", "goal_from", "parse", "synthesize"),
    "morello.errors": ("MorelloError",),
    "morello.run.arrays": ("empty", "pack", "unpack"),
    "morello.search.budget": ("SearchBudget",),
}

__all__ = [
    "DEFAULT_EXPANSIONS",
    "Goal",
    "Kernel",
    "MorelloError",
    "SearchBudget",
    "attention",
    "compile",
    "conv2d",
    "einsum",
    "empty",
    "gelu",
    "goal",
    "goal_from",
    "layer_norm",
    "matmul",
    "pack",
    "parse",
    "softmax",
    "synthesize",
    "unpack",
]


__getattr__, __dir__ = lazy(__name__, _MODULES)
