"""Morello: turns tensor operations into the provably cheapest C program of a target."""

from morello.lazy import lazy

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
        qmatmul,
        quantize_weights,
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
    "qmatmul",
    "quantize_weights",
    "softmax",
    "synthesize",
    "unpack",
]


__getattr__, __dir__ = lazy(__name__, {"morello.api": __all__})
