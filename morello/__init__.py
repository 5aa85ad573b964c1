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
    from morello.models import compile_model, from_onnx, from_torch

    __version__: str

__all__ = [
    "Goal",
    "Kernel",
    "MorelloError",
    "SearchBudget",
    "__version__",
    "attention",
    "compile",
    "compile_model",
    "conv2d",
    "einsum",
    "empty",
    "from_onnx",
    "from_torch",
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


_OF_MODELS = ["compile_model", "from_onnx", "from_torch"]
_EXPORTS = {"morello.api": [name for name in __all__ if name not in _OF_MODELS], "morello.models": _OF_MODELS}

__getattr__, __dir__ = lazy(__name__, _EXPORTS)
