"""Files of models by name."""

from __future__ import annotations

import tempfile
from pathlib import Path

from harness.light import NAMES, light_model


def file_of(name: str) -> Path:
    """Return the file of that name, of a light model, or of a network, which is exported once."""
    if name in NAMES:
        return light_model(name)
    return Path(name) if name.endswith(".onnx") else _exported(name)


def _exported(name: str) -> Path:
    path = Path(tempfile.gettempdir(), f"morello-network-{name}.onnx")
    if not path.exists():
        import torch  # pyright: ignore[reportMissingImports]

        import convnets

        partial = path.with_suffix(".part")
        program = torch.onnx.export(convnets.network(name), (torch.randn(1, 3, 224, 224),), dynamo=True, verbose=False)
        assert program
        program.save(partial)
        partial.rename(path)
    return path
