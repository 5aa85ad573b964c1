"""Verification of a whole model: each step on the reference's inputs, and the outputs within propagated bounds."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

import attrs
import numpy as np

from morello.api.kernel import Kernel
from morello.errors import VerificationError
from morello.models.graph import Graph
from morello.models.model import CompiledModel
from morello.models.places import Buffer, Place
from morello.models.plan import Call
from morello.models.program import ModelProgram
from morello.models.reference import Memory, evaluated
from morello.run.arrays import convert, empty, pack, unpack
from morello.verify.tolerance import Expectation, as_float64, expectations


@attrs.frozen
class CheckedPart:
    """A step or an output, and its largest error as a fraction of the bound."""

    name: str
    kind: str
    error: float


@attrs.frozen
class ModelCheck:
    """The checks that a model has passed on random inputs."""

    name: str
    steps: tuple[CheckedPart, ...]
    outputs: tuple[CheckedPart, ...]

    @property
    def worst(self) -> CheckedPart:
        """Return the step with the largest error."""
        return max(self.steps, key=lambda one: one.error)

    def __str__(self) -> str:
        worst = (
            f"the worst step is {self.worst.name} ({self.worst.kind}): its error is {self.worst.error:.3f} of its bound"
        )
        outputs = "".join(f"; output {one.name}: {one.error:.3f} of its bound" for one in self.outputs)
        return f"{self.name}: {len(self.steps)} steps passed; {worst}{outputs}"


@attrs.define
class _Checker:
    """Runs a plan by reference semantics, also with each result moved by its bound, and kernels on the same inputs."""

    program: ModelProgram
    inputs: Mapping[str, np.ndarray]
    rng: np.random.Generator

    @cached_property
    def exact(self) -> Memory:
        return Memory(self.program.plan.graph, self.inputs, convert)

    @cached_property
    def moved(self) -> Memory:
        return Memory(self.program.plan.graph, self.inputs, convert)

    def step(self, call: Call, kernel: Kernel) -> CheckedPart:
        """Check one step, and compute its results in both memories. Raises VerificationError."""
        places = dict(zip((one.operand for one in kernel.program.parameters), call.written.places, strict=True))
        read = [number for number, one in enumerate(kernel.spec.logical.declared) if one.reads]
        written = [number for number, one in enumerate(kernel.spec.logical.declared) if one.writes]
        inputs = [self._operand(self.exact, kernel, places, number) for number in read]
        expected = expectations(kernel.spec.logical, inputs, integral=False)
        got = _run(kernel, dict(zip(read, inputs, strict=True)))
        worst = 0.0
        for one, values in zip(expected, got, strict=True):
            worst = max(worst, float(np.max(one.errors(values), initial=0.0)))
        part = CheckedPart(call.step.name, kernel.program.name, worst)
        if not worst <= 1:
            reason = f"{part.name} ({call.step}), computed by {part.kind}, is wrong: {worst:.3g} times the bound"
            raise VerificationError(reason, "`Kernel.check` of this kernel narrows it down; please report it")
        again = [self._operand(self.moved, kernel, places, number) for number in read]
        moved = expectations(kernel.spec.logical, again, integral=False)
        for number, first, other in zip(written, expected, moved, strict=True):
            _store(self.exact.at(places[number]), first.values, first)
            _store(self.moved.at(places[number]), self._shifted(other), other)
        return part

    def _operand(self, memory: Memory, kernel: Kernel, places: Mapping[int, Place], number: int) -> np.ndarray:
        shape = tuple(map(int, kernel.spec.logical.operand(number).shape))
        return np.ascontiguousarray(memory.at(places[number])).reshape(shape)

    def _shifted(self, one: Expectation) -> np.ndarray:
        """Return values that are the bound away, up or down at random."""
        if not one.dtype.is_float:
            return one.values
        bound = np.where(np.isfinite(one.bound), one.bound, 0.0)
        return one.values + bound * self.rng.choice([-1.0, 1.0], one.values.shape)


def _store(to: np.ndarray, values: np.ndarray, one: Expectation) -> None:
    to[...] = convert(values, one.dtype).reshape(to.shape)


def _run(kernel: Kernel, inputs: Mapping[int, np.ndarray]) -> list[np.ndarray]:
    """Return the outputs of a kernel for inputs by operand."""
    arguments = kernel.function.arguments
    arrays = [pack(inputs[one.operand], one.tensor) if one.reads else empty(one.tensor) for one in arguments]
    kernel.function(arrays)
    made = {one.operand: unpack(array, one.tensor) for one, array in zip(arguments, arrays, strict=True) if one.writes}
    return [made[number] for number in sorted(made)]


def check_model(source: Graph, program: ModelProgram, seed: int = 0, cc: str | None = None) -> ModelCheck:
    """Verify the program of a model on random inputs. Raises VerificationError for a wrong step or output.

    Each step runs on the reference's inputs of that step, and its results are within the bound of rounding errors.
    Outputs of the whole are compared with the reference semantics of the graph `source`, before any pass. Their bound
    is the largest difference that shows if the result of each step is moved by its own bound, up or down at random.
    """
    rng = np.random.default_rng(seed)
    inputs = {name: source.tensors[name].random(rng) for name in source.inputs}
    checker = _Checker(program, inputs, rng)
    kernels = zip(program.plan.calls, program.kernels, strict=True)
    steps = tuple(checker.step(call, kernel) for call, kernel in kernels)
    made = CompiledModel(program, cc)(*inputs.values())
    expected = evaluated(source, inputs)
    outputs: list[CheckedPart] = []
    for name, got in zip(source.outputs, made if isinstance(made, tuple) else (made,), strict=True):
        exact, place = as_float64(expected[name]), next(one for one in checker.moved.buffers if _is_output(one, name))
        moved = as_float64(checker.moved.buffers[place]).reshape(exact.shape)
        with np.errstate(invalid="ignore"):
            error, bound = np.nanmax(np.abs(as_float64(got) - exact)), np.nanmax(np.abs(moved - exact))
        part = CheckedPart(name, "output", float(error / bound) if error else 0.0)
        if not part.error <= 1 or np.isnan(as_float64(got)).any() != np.isnan(exact).any():
            worst = max(steps, key=lambda one: one.error)
            reason = f"output {name} is wrong: its error is {error:.3g}, and {bound:.3g} is allowed"
            raise VerificationError(
                reason, f"every step is right by itself; the worst is {worst.name}; please report it"
            )
        outputs.append(part)
    return ModelCheck(program.name, steps, tuple(outputs))


def _is_output(buffer: Buffer, name: str) -> bool:
    return buffer.kind == "output" and buffer.name == name
