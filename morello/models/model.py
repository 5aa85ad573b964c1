"""Models that Python calls: built from the same C as `morello build` writes."""

from __future__ import annotations

import ctypes
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from morello.api.library import make_library
from morello.build.library import build_file
from morello.build.toolchain import find_compiler
from morello.codegen.library import CFile
from morello.db.default import DatabaseLike
from morello.errors import ArgumentError
from morello.models.graph import Graph
from morello.models.onnx import from_onnx
from morello.models.passes import simplified
from morello.models.plan import plan_of
from morello.models.program import ModelProgram
from morello.models.solve import EXPANSIONS, goals_of, solved
from morello.plugins.registry import installed
from morello.run.arrays import workspace_bytes


def c_name(text: str) -> str:
    """Return a name in C for a model."""
    name = re.sub(r"\W", "_", text, flags=re.ASCII).strip("_").lower()
    return name if name and name[0].isalpha() else f"model_{name}"


def program_of(
    graph: Graph,
    target: str,
    db: DatabaseLike = None,
    expansions: int = EXPANSIONS,
    jobs: int = 1,
    cc: str | None = None,
) -> ModelProgram:
    """Return the program of a graph of steps for a target."""
    plan, name = plan_of(graph), c_name(graph.name)
    goals = goals_of(plan, name, installed().target(target))
    kernels = dict(zip(goals, solved([*goals.values()], db, expansions, jobs, cc), strict=True))
    return ModelProgram(name, plan, tuple(kernels[call.written.text] for call in plan.calls))


class CompiledModel:
    """A function on arrays, one for each input of the model, that returns the output, or a tuple of them."""

    def __init__(self, program: ModelProgram, cc: str | None = None):
        self.program = program
        kernels = list({kernel.program.name: kernel for kernel in program.kernels}.values())
        library = make_library(f"{program.name}_kernels", kernels)
        compiler = find_compiler(cc, kernels[0].target.info)
        units = {**library.units, f"{program.name}.c": CFile(program.source, ())}
        headers = {f"{program.name}_kernels.h": library.header, f"{program.name}.h": program.header}
        data = build_file("so", units, headers, compiler)
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, f"{program.name}.so")
            path.write_bytes(data)
            self._run = getattr(ctypes.CDLL(os.fspath(path)), f"{program.name}_run")
        self._weights = workspace_bytes(len(program.weights))
        self._weights[:] = np.frombuffer(program.weights, np.uint8)
        self._workspace = workspace_bytes(program.workspace)

    def __call__(self, *arrays: Any) -> Any:
        graph = self.program.plan.graph
        names = graph.inputs
        if len(arrays) != len(names):
            raise ArgumentError(f"the model takes {len(names)} arrays, not {len(arrays)}", f"pass {', '.join(names)}")
        given = [
            np.ascontiguousarray(one, graph.tensors[name].dtype.numpy) for one, name in zip(arrays, names, strict=True)
        ]
        for one, name in zip(given, names, strict=True):
            if one.shape != (shape := graph.tensors[name].shape):
                raise ArgumentError(
                    f"{name}: expected shape {shape}, got {one.shape}", "build the model for these sizes"
                )
        tensors = [graph.tensors[name] for name in graph.outputs]
        made = [np.empty(one.shape, one.dtype.numpy) for one in tensors]
        inputs = (ctypes.c_void_p * (1 + len(given)))(self._weights.ctypes.data, *(one.ctypes.data for one in given))
        outputs = (ctypes.c_void_p * len(made))(*(one.ctypes.data for one in made))
        self._run(inputs, outputs, ctypes.c_void_p(self._workspace.ctypes.data))
        return made[0] if len(made) == 1 else tuple(made)


def compile_model(
    model: str | os.PathLike[str] | Graph,
    *,
    dims: Mapping[str, int] | None = None,
    target: str = "x86_avx2",
    db: DatabaseLike = None,
    expansions: int = EXPANSIONS,
    jobs: int = 1,
    cc: str | None = None,
) -> CompiledModel:
    """Return a model, the path of an ONNX file or a graph, as a function on arrays."""
    graph = model if isinstance(model, Graph) else from_onnx(model, dims)
    return CompiledModel(program_of(simplified(graph), target, db, expansions, jobs, cc), cc)
