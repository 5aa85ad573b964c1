"""Models: graphs of named tensors whose nodes are Specs, from ONNX to one program in C."""

# ruff: noqa: F401

from morello.lazy import lazy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from morello.models.check import check_model
    from morello.models.folder import files_of
    from morello.models.listing import rows_of, spec_file_of
    from morello.models.model import CompiledModel, PlannedModel, compile_model, default_budget, targets_of
    from morello.models.modules import from_torch
    from morello.models.onnx import from_onnx
    from morello.models.pages import steps_of
    from morello.models.sharing import shared
    from morello.models.solve import solved

#: The exported names of each module.
_EXPORTS = {
    "morello.models.check": ["check_model"],
    "morello.models.folder": ["files_of"],
    "morello.models.listing": ["rows_of", "spec_file_of"],
    "morello.models.model": ["CompiledModel", "PlannedModel", "compile_model", "default_budget", "targets_of"],
    "morello.models.onnx": ["from_onnx"],
    "morello.models.pages": ["steps_of"],
    "morello.models.sharing": ["shared"],
    "morello.models.solve": ["solved"],
    "morello.models.modules": ["from_torch"],
}

if not TYPE_CHECKING:
    __all__ = sorted(name for names in _EXPORTS.values() for name in names)


__getattr__, __dir__ = lazy(__name__, _EXPORTS)
