"""Models that Python calls: built from the same C as `morello build` writes."""

from __future__ import annotations

import ctypes
import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from morello.api.goals import Goal
from morello.api.pipeline import parse
from morello.build.library import build_units
from morello.build.toolchain import find_compiler, thread_flags
from morello.codegen.interface import setter_name
from morello.db.default import DatabaseLike, database
from morello.errors import ArgumentError, MorelloError
from morello.ir.impl import cost_and_peak
from morello.kernels.target import BASE, Target
from morello.models.graph import Graph, Tensor
from morello.models.layouts import LayoutChoices, LayoutReport, cost_of
from morello.models.naming import c_name, check_model_name
from morello.models.onnx import from_onnx
from morello.models.passes import simplified
from morello.models.plan import Call, Plan, plan_of
from morello.models.program import ModelProgram, Variant
from morello.models.sharing import shared
from morello.models.solve import Progress, budgets, goals_of, kernels_of, solved
from morello.plugins.profile import parsed
from morello.plugins.profile_choice import ProfileLike
from morello.plugins.registry import installed
from morello.run.arrays import in_numpy, workspace_bytes
from morello.run.dlpack import to_library_of
from morello.run.function import checked_threads, team_library
from morello.run.runner import is_native
from morello.search.budget import MODEL_EXPANSIONS, MODEL_MEMORY, SearchBudget, available_memory
from morello.verify.reference import REFERENCE_NAME


@attrs.frozen(eq=False)
class PlannedModel:
    """A model before its searches: its graph before any pass, and its `goals` by the text of their Specs by target.

    With `choices`, they are those of all layouts, among which `solved` chooses; `report` has the costs then.
    """

    name: str
    source: Graph
    plan: Plan
    goals: Mapping[Target, Mapping[str, Goal]]
    choices: LayoutChoices | None = None
    report: LayoutReport | None = None

    @classmethod
    def of(
        cls, graph: Graph, targets: Sequence[Target], name: str | None = None, layouts: str = "nhwc"
    ) -> PlannedModel:
        """Return the model of a graph; its names in C begin with `name`. Raises EmitError if C cannot have that."""
        if layouts not in ("nhwc", "exact"):
            raise MorelloError(f"layouts={layouts!r}", "pass 'nhwc' or 'exact'")
        if name is not None:
            check_model_name(name)
        steps = simplified(graph)
        plan, choices = plan_of(steps), LayoutChoices(steps) if layouts == "exact" else None
        made = cls(name or c_name(graph.name), graph, plan, {one: {} for one in targets}, choices)
        return attrs.evolve(made, goals=made._goals_of([*plan.calls, *(choices.calls if choices else ())]))

    def _goals_of(self, calls: Sequence[Call]) -> Mapping[Target, Mapping[str, Goal]]:
        several = len(self.goals) > 1
        return {one: goals_of(calls, self.name, one, f"_{one.c_name}" * several) for one in self.goals}

    @property
    def kernels(self) -> int:
        """Return the number of its kernels, for all targets."""
        return sum(map(len, self.goals.values()))

    def scheduled(self, text: str, filename: str) -> PlannedModel:
        """Return the model with the schedules of a Spec file for equal Specs. Raises MorelloError if there are none."""
        found: dict[Target, Mapping[str, Goal]] = {}
        for target, goals in self.goals.items():
            name, costs = installed().recipe(target)
            profile = parsed(costs, name) if costs else BASE
            read = parse(text, target=name, filename=filename, profile=profile)
            given = {one.spec: one for one in read.values()}
            if unknown := [one.name for spec, one in given.items() if spec not in {own.spec for own in goals.values()}]:
                reason = f"{filename}: no kernel of {self.name} has the Spec {unknown[0]}"
                raise MorelloError(reason, "begin with the file of `morello import` for this model and these sizes")
            found[target] = {
                key: attrs.evolve(one, position=given[one.spec].position) if one.spec in given else one
                for key, one in goals.items()
            }
        return attrs.evolve(self, goals=found)

    def solved(
        self,
        db: DatabaseLike = None,
        budget: SearchBudget | None = None,
        jobs: int = 1,
        progress: Progress | None = None,
    ) -> PlannedModel:
        """Return the model with the programs that searches find, which share a budget for each target."""
        shares = self.shares(budget or default_budget())
        flat = [one for goals in self.goals.values() for one in goals.values()]
        made = self.with_goals(solved(flat, database(db), [shares[one.name] for one in flat], jobs, progress))
        return made._chosen(self.choices) if self.choices else made

    def shares(self, budget: SearchBudget) -> Mapping[str, SearchBudget]:
        """Return the share of each kernel in a budget for each target, by name.

        To choose among layouts, each kernel has as many expansions as without.
        """
        flat = [one for goals in self.goals.values() for one in goals.values()]
        if budget.expansions:
            texts = {call.written.text for call in self.plan.calls}
            own = sum(goals[text].spec.logical.flops for goals in self.goals.values() for text in texts)
            more = sum(one.spec.logical.flops for one in flat) / own if own else 1
            budget = attrs.evolve(budget, expansions=int(budget.expansions * len(self.goals) * more))
        return {one.name: share for one, share in zip(flat, budgets(flat, budget), strict=True)}

    def _chosen(self, choices: LayoutChoices) -> PlannedModel:
        """Return the model with the layouts under which its kernels cost least, for all targets together."""
        costs, lows = dict[str, int](), dict[str, int]()
        for goals in self.goals.values():
            for text, one in goals.items():
                costs[text] = costs.get(text, 0) + cost_and_peak(one.impl).cost
                lows[text] = lows.get(text, 0) + one.low
        total, found = choices.best(costs)
        cost, default = cost_of(found, costs), cost_of(self.plan, costs)
        # The total counts the copies that a Conv3d needs for its border, and that steps may share, for each step.
        low = choices.best(lows)[0] - (total - cost)
        plan = found if cost < default else self.plan
        report = LayoutReport(min(cost, default), default, min(low, cost_of(self.plan, lows)))
        named = self._goals_of(plan.calls)
        goals = {
            target: {text: attrs.evolve(self.goals[target][text], name=one.name) for text, one in goals.items()}
            for target, goals in named.items()
        }
        return attrs.evolve(self, plan=plan, goals=goals, choices=None, report=report)

    def with_goals(self, goals: Sequence[Goal]) -> PlannedModel:
        """Return the model with these goals, one for each of its own."""
        made = iter(goals)
        found = {target: {text: next(made) for text in own} for target, own in self.goals.items()}
        return attrs.evolve(self, goals=found)

    def shared(self, threads: int) -> PlannedModel:
        """Return the model, which is solved, with loops that so many threads share where this lowers the cost."""
        made = {target: {text: shared(one, threads) for text, one in own.items()} for target, own in self.goals.items()}
        return self if threads == 1 else attrs.evolve(self, goals=made)

    def program(self, cc: str | None = None, *, embed: bool = False, threads: int = 1) -> ModelProgram:
        """Return the program of a model that is solved; with `embed`, its C has the weights.

        With more than one of `threads`, they share loops, and their number is a parameter of the function.
        """
        goals = self.shared(threads).goals
        made = [Variant(target, kernels_of(own, self.plan, cc)) for target, own in goals.items()]
        return ModelProgram(self.name, self.plan, tuple(made), embed, threads)


def targets_of(names: Sequence[str], profile: ProfileLike | None = None, cpu: str | None = None) -> list[Target]:
    """Return targets by name; without names, that of this machine's CPU which needs the most of its features."""
    registry = installed()
    if not names:
        usable = [registry.target(one) for one in registry.names if one != REFERENCE_NAME and not registry.reason(one)]
        native = [one for one in usable if is_native(one.info)]
        if not native:
            raise MorelloError("no installed target is for this machine", "name one with --target")
        names = [max(native, key=lambda one: len(one.info.cpu_features)).name]
    return [registry.target(one, profile, cpu) for one in names]


def default_budget() -> SearchBudget:
    """Return the budget that the searches of a model share without limits."""
    memory = min(available_memory() // 2, MODEL_MEMORY)
    return attrs.evolve(SearchBudget.default(memory), expansions=MODEL_EXPANSIONS)


class _Workspace(threading.local):
    """The workspace of a thread."""

    memory: np.ndarray | None = None


class CompiledModel:
    """A function on arrays, one for each input of the model, that returns the output, or a tuple of them.

    Inputs may be given by name, and outputs as `out`, an array or a tuple of them, which is then returned. Arrays are
    of any library, and outputs of that of the first one. Inputs that are not contiguous are copied. Other threads run
    meanwhile, and may call the same model: each has a workspace of its own. Pickles hold the C: another process builds
    it again, or takes it from the cache. `model(..., threads=N)` lets N threads share its loops, by default as many as
    it was compiled for.
    """

    def __init__(self, program: ModelProgram, cc: str | None = None):
        self.program, self._cc = program, cc
        self._workspace = _Workspace()

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.program, self._cc)

    def __repr__(self) -> str:
        return f"<CompiledModel {self.program.summary}>"

    @cached_property
    def _run(self) -> Callable[..., int]:
        program = self.program
        compiler = find_compiler(self._cc, program.variants[0].target.info)
        threads = thread_flags(compiler) if program.parallel else ()
        path = build_units(program.units, {f"{program.name}.h": program.header}, compiler, threads)
        library = ctypes.CDLL(os.fspath(path))
        if program.parallel:
            team = ctypes.CDLL(os.fspath(team_library(compiler)))
            library[setter_name(program.name)](team.morello_share_team)
        return library[f"{program.name}_run"]

    @cached_property
    def _weights(self) -> np.ndarray:
        given = self.program.weights
        memory = workspace_bytes(len(given))
        memory[:] = np.frombuffer(given, np.uint8)
        return memory

    def __call__(self, *arrays: Any, out: Any = None, threads: int | None = None, **named: Any) -> Any:
        graph = self.program.plan.graph
        given = self._in_order(arrays, named)
        inputs = [_fitted(graph.tensors[name], one) for name, one in zip(graph.inputs, given, strict=True)]
        outputs = self._outputs(out, inputs)
        self._call(inputs, outputs, threads)
        if out is not None:
            return out
        export = to_library_of(given[0]) if given else None
        made = [export(one) for one in outputs] if export else outputs
        return made[0] if len(made) == 1 else tuple(made)

    def _call(self, inputs: Sequence[np.ndarray], outputs: Sequence[np.ndarray], threads: int | None = None) -> None:
        threads = self.program.threads if threads is None else checked_threads(threads)
        size, memory = self.program.workspace_for(threads), self._workspace.memory
        if memory is None or len(memory) < size:
            memory = self._workspace.memory = workspace_bytes(size)
        given = [self._weights, *inputs]
        # ctypes releases the GIL during the call.
        self._run(
            (ctypes.c_void_p * len(given))(*(one.ctypes.data for one in given)),
            (ctypes.c_void_p * len(outputs))(*(one.ctypes.data for one in outputs)),
            ctypes.c_void_p(memory.ctypes.data),
            *([ctypes.c_int(threads)] if self.program.threads > 1 else []),
        )

    def _in_order(self, arrays: Sequence[Any], named: Mapping[str, Any]) -> list[Any]:
        """Return the inputs of a call in the model's order; names in C stand for those of the model, too."""
        names, fields = self.program.plan.graph.inputs, self.program.fields
        found = dict(zip(names, arrays, strict=False))
        by_field = {fields[name]: name for name in names}
        for name, one in named.items():
            own = name if name in names else by_field.get(name)
            if own is None or own in found:
                reason = f"there is no input {name}" if own is None else f"two arrays for the input {name}"
                raise ArgumentError(reason, f"the inputs are {', '.join(names)}")
            found[own] = one
        if len(found) != len(names) or len(arrays) > len(names):
            count = len(arrays) + len(named)
            raise ArgumentError(f"the model takes {len(names)} arrays, not {count}", f"pass {', '.join(names)}")
        return [found[name] for name in names]

    def _outputs(self, out: Any, inputs: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return the arrays for the outputs, which are new unless the caller gives them."""
        graph = self.program.plan.graph
        tensors = [graph.tensors[name] for name in graph.outputs]
        if out is None:
            return [np.empty(one.shape, one.dtype.numpy) for one in tensors]
        given = [*out] if isinstance(out, tuple) else [out]
        if len(given) != len(tensors):
            raise ArgumentError(f"the model has {len(tensors)} outputs, not {len(given)}", "pass a tuple of them")
        made = [_fitted(tensor, one, writes=True) for tensor, one in zip(tensors, given, strict=True)]
        for number, one in enumerate(made):
            if any(np.may_share_memory(one, other) for other in (*inputs, *made[:number])):
                raise ArgumentError(f"{tensors[number].name}: overlaps another array", "pass an array of its own")
        return made

    def bench(self, seconds: float = 0.3, threads: int | None = None) -> float:
        """Return the median seconds of a call on random inputs, of those within that time, at least three."""
        graph, rng = self.program.plan.graph, np.random.default_rng(0)
        inputs = [graph.tensors[name].random(rng) for name in graph.inputs]
        outputs = self._outputs(None, inputs)
        times = list[float]()
        self._call(inputs, outputs, threads)
        while len(times) < 3 or sum(times) < seconds:
            start = time.perf_counter()
            self._call(inputs, outputs, threads)
            times.append(time.perf_counter() - start)
        return float(np.median(times))


def _fitted(tensor: Tensor, array: Any, *, writes: bool = False) -> np.ndarray:
    """Return a contiguous array of numpy for a tensor, on the same memory if it `writes`. Raises ArgumentError."""
    try:
        found = in_numpy(array)
    except ArgumentError as error:
        raise ArgumentError(f"{tensor.name}: {error.message}", error.hint) from error
    if found is None:
        raise ArgumentError(f"{tensor.name}: expected an array, got {type(array).__name__}", "use numpy.asarray(...)")
    dtype = tensor.dtype.numpy
    if tensor.dtype.takes_bits(found.dtype):
        found = found.view(dtype)
    if found.dtype != dtype:
        hint = f"convert it: array.astype({dtype.name!r})"
        raise ArgumentError(f"{tensor.name}: expected values of {dtype}, got {found.dtype}", hint)
    if found.shape != tensor.shape:
        hint = "build the model for these sizes"
        raise ArgumentError(f"{tensor.name}: expected shape {tensor.shape}, got {found.shape}", hint)
    if writes and not (found.flags.c_contiguous and found.flags.writeable):
        raise ArgumentError(f"{tensor.name}: expected a contiguous, writable array", "pass a new one: numpy.empty(...)")
    return np.ascontiguousarray(found).reshape(tensor.shape)


def compile_model(
    model: str | os.PathLike[str] | Graph,
    *,
    dims: Mapping[str, int] | None = None,
    target: str | None = None,
    db: DatabaseLike = None,
    expansions: int = MODEL_EXPANSIONS,
    jobs: int = 1,
    cc: str | None = None,
    layouts: str = "nhwc",
    threads: int = 1,
) -> CompiledModel:
    """Return a model, the path of an ONNX file or a graph, as a function on arrays.

    `dims` are the sizes of named dimensions; `target` is by default the installed one that uses most features of this
    CPU. Up to `jobs` searches at once share `expansions`, by the work of their kernels. Images between kernels have
    channels last; with `layouts="exact"`, they have the layouts under which all kernels and conversions cost least,
    for which about four times as many kernels are searched. With more than one of `threads`, that many share loops of
    kernels where this lowers the cost. Raises MorelloError for a model that is not supported, and ToolchainError
    without a C compiler.
    """
    (chosen,) = targets_of([target] if target else [])
    find_compiler(cc, chosen.info)  # fail before the search
    threads = checked_threads(threads)
    graph = model if isinstance(model, Graph) else from_onnx(Path(model), dims)
    planned = PlannedModel.of(graph, [chosen], layouts=layouts)
    budget = attrs.evolve(default_budget(), expansions=expansions)
    return CompiledModel(planned.solved(db, budget, jobs).program(cc, threads=threads), cc)
