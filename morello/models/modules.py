"""Models in torch: exported to ONNX in memory, then as those."""

# Without torch, pyright takes morello/torch.py for it.
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from morello.errors import MorelloError
from morello.models.graph import Graph
from morello.models.onnx import graph_of

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.nn import Module


def from_torch(
    module: Module | ExportedProgram, example_inputs: Sequence[Any] = (), dims: Mapping[str, int] | None = None
) -> Graph:
    """Return the graph of a module for inputs of these shapes, with its current weights.

    `dims` are the sizes of named dimensions of an exported program. Raises MorelloError for a module that torch.export
    cannot export, and as `from_onnx` does.
    """
    try:
        import onnxscript  # noqa: F401
        import torch  # pyright: ignore[reportMissingImports]
        from torch.export import ExportedProgram
    except ImportError as error:
        raise MorelloError(
            "models in torch need the packages torch and onnxscript", "pip install 'morello[torch]'"
        ) from error
    exported = isinstance(module, ExportedProgram)
    name = "model" if exported else type(module).__name__
    if not exported and module.training:
        raise MorelloError(f"{name}: the module is in training mode", "call its method eval first")
    try:
        with warnings.catch_warnings(), _quiet("torch.onnx", "onnx_ir", "onnxscript"):
            warnings.simplefilter("ignore")
            program = torch.onnx.export(module, tuple(example_inputs), dynamo=True, verbose=False)
            assert program
            model = program.model_proto
    except Exception as error:
        hint = "see torch.export.export(module, example_inputs), which has to trace it"
        raise MorelloError(f"{name}: torch cannot export it: {reason_of(error)}", hint) from error
    return graph_of(model, name, dims or {}, name)


def reason_of(error: BaseException) -> str:
    """Return the first line of what caused an error."""
    while error.__cause__:
        error = error.__cause__
    return (str(error).strip() or type(error).__name__).splitlines()[0]


@contextmanager
def _quiet(*names: str) -> Iterator[None]:
    """Suppress the messages of loggers below errors."""
    loggers = [logging.getLogger(name) for name in names]
    levels = [one.level for one in loggers]
    for one in loggers:
        one.setLevel(logging.ERROR)
    try:
        yield
    finally:
        for one, level in zip(loggers, levels, strict=True):
            one.setLevel(level)
