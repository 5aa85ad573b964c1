"""Compile kernels for the forms of arrays, and cache them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from functools import cache
from typing import Any, TypedDict

import attrs
import numpy as np

from morello.api import pipeline
from morello.api.functions.views import ArrayView, Steps, back, through
from morello.api.goals import Goal
from morello.api.kernel import Kernel
from morello.errors import ArgumentError, MorelloError
from morello.host import missing_features
from morello.ir.ops import Operation
from morello.ir.signature import Signature
from morello.ir.spec import LogicalSpec
from morello.kernels.target import Target
from morello.plugins.registry import installed
from morello.progress import Listener
from morello.run.arrays import in_numpy
from morello.run.dlpack import to_library_of
from morello.search.budget import SearchBudget, available_memory


class FunctionOptions(TypedDict, total=False):
    """Options of all functions.

    `target` is a target or its name, by default the one for this machine. `time_limit` is the seconds of a search,
    `budget` its budget; by default it takes about ten seconds. `progress` is that of `Goal.synthesize`. With
    `threads=1`, the kernel has no parallel loops; other numbers are those of `Kernel`.
    """

    target: str | Target | None
    time_limit: float | None
    budget: SearchBudget | None
    progress: Listener
    threads: int | None


@attrs.frozen
class CallSettings:
    """The options of a call. `progress` does not affect equality."""

    target: str | Target | None = None
    time_limit: float | None = None
    budget: SearchBudget | None = None
    progress: Listener = attrs.field(default=None, eq=False)
    threads: int | None = None

    def __attrs_post_init__(self) -> None:
        if self.time_limit is not None and not self.time_limit > 0:
            raise MorelloError(f"time_limit is {self.time_limit!r}", "it is a number of seconds above 0")
        if self.time_limit is not None and self.budget is not None:
            raise MorelloError("both time_limit and budget", "pass budget=SearchBudget(seconds=..., ...)")

    def limits(self) -> SearchBudget:
        """Return the budget of a search."""
        if self.budget is not None:
            return self.budget
        expansions = pipeline.DEFAULT_EXPANSIONS if self.time_limit is None else None
        return SearchBudget(self.time_limit, expansions=expansions, memory=available_memory() // 2)

    def chosen(self) -> Target:
        """Return the target. Raises MorelloError for an unknown name."""
        if self.target is None:
            return host_target()
        return installed().target(self.target) if isinstance(self.target, str) else self.target


@attrs.frozen
class FunctionPlan:
    """A function on some arrays: a kernel's name, operation and iteration shape, and how arrays become its operands.

    `inputs` are the views of the operands with the positions of the arrays in the function's call. `shape` is that of
    the result. A Compose has `names` for its operands in the order of the call; `order` lists, for each operand of the
    Compose, its position in the call.
    """

    name: str
    op: Operation
    sizes: tuple[int, ...]
    inputs: tuple[tuple[int, ArrayView], ...]
    output: ArrayView
    shape: tuple[int, ...]
    names: tuple[str, ...] = ()
    order: tuple[int, ...] = ()

    def goal(self, target: Target, serial: bool) -> Goal:
        """Return the goal, with all operands in the slowest level. Raises SpecError for operands of wrong types."""
        views = (*(view for _, view in self.inputs), self.output)
        order = self.order or tuple(range(len(views)))
        implicit_dims = int(self.op.optional_batch and len(self.sizes) + 1 == self.op.rank)
        states = tuple(views[place].state(target).shifted(implicit_dims) for place in order)
        logical = LogicalSpec(self.op, (1,) * implicit_dims + self.sizes, states, serial)
        default = Signature.of(logical)
        signature = Signature(
            self.names or default.names, tuple(order.index(place) for place in range(len(order))), implicit_dims
        )
        return Goal.of(target.spec(logical), target, self.name, signature=None if signature == default else signature)


#: Makes the plan of a function for arrays; `out` is the result's, if it is given.
Planner = Callable[..., FunctionPlan]


@attrs.frozen
class FunctionCall:
    """A kernel, and how a function's arrays become its operands and its output the function's result."""

    kernel: Kernel
    inputs: tuple[tuple[int, Steps], ...]
    out: Steps
    result: Steps
    threads: int | None

    def __call__(self, arrays: Sequence[Any], out: Any) -> Any:
        given = [through(arrays[place], steps) if steps else arrays[place] for place, steps in self.inputs]
        if out is not None:
            self.kernel(*given, out=through(out, self.out) if self.out else out, threads=self.threads)
            return out
        made = self.kernel(*given, threads=self.threads)
        return through(made, self.result) if made.shape != self.result[0][1] or self.result[1:] else made


_DEFAULT = CallSettings()
_lock = threading.RLock()
_calls: dict[Hashable, FunctionCall] = {}
_kernels: dict[Hashable, Kernel] = {}


def call(
    plan: Planner, parameters: tuple[Hashable, ...], arrays: Sequence[Any], out: Any, options: FunctionOptions
) -> Any:
    """Call a function by its plan, with a kernel compiled at the first call for such arrays.

    Results are arrays of the first one's library, or `out`. Raises ArgumentError for arrays that do not fit.
    """
    settings = CallSettings(**options) if options else _DEFAULT
    forms: list[Hashable] = [plan, parameters, settings]
    written = out
    for array in (*arrays, out) if out is not None else arrays:
        if type(array) is not np.ndarray:
            return _call_foreign(plan, parameters, arrays, out, settings)
        forms.append((array.dtype, array.shape, array.strides))
    known = _cached_call(key := tuple(forms)) or _compile_call(key, plan, parameters, arrays, written, settings)
    return known(arrays, written)


def _cached_call(key: Hashable) -> FunctionCall | None:
    """Return the cached call for such arrays, or None. Raises ArgumentError for unhashable parameters."""
    try:
        return _calls.get(key)
    except TypeError as error:
        raise ArgumentError(
            f"a parameter of a wrong type: {error}", "pass numbers, words, or tuples of numbers"
        ) from None


def _call_foreign(
    plan: Planner, parameters: tuple[Hashable, ...], arrays: Sequence[Any], out: Any, settings: CallSettings
) -> Any:
    """Call with arrays of other libraries: through views of torch, or through numpy."""
    first = arrays[0]
    kind, written, give = type(first), out, None
    everything = arrays if out is None else (*arrays, out)
    if not (hasattr(kind, "permute") and hasattr(kind, "stride")) or any(type(one) is not kind for one in everything):
        give = to_library_of(first)
        seen = [*map(_seen, everything)]
        forms = [(one.dtype, one.shape, one.strides) for one in seen]
        arrays, written = seen[: len(arrays)], None if out is None else seen[-1]
    else:
        forms = [(one.dtype, one.shape, one.stride()) for one in everything]
    key = (plan, parameters, settings, kind, *forms)
    known = _cached_call(key) or _compile_call(key, plan, parameters, arrays, written, settings)
    made = known(arrays, written)
    return out if out is not None else made if give is None else give(made)


def _seen(array: Any) -> np.ndarray:
    """Return an array of any library as a numpy array. Raises ArgumentError for other objects."""
    found = in_numpy(array)
    if found is None:
        raise ArgumentError(f"expected an array, got {type(array).__name__}", "convert it: numpy.asarray(...)")
    return np.asarray(found)


def _compile_call(
    key: Hashable,
    plan: Planner,
    parameters: tuple[Hashable, ...],
    arrays: Sequence[Any],
    out: Any,
    settings: CallSettings,
) -> FunctionCall:
    """Compile and cache the call for arrays like these. Threads take turns."""
    views = [_seen(array) for array in arrays]
    planned = plan(*parameters, views, None if out is None else _seen(out))
    with _lock:
        if key in _calls:
            return _calls[key]
        kernel = _compiled(planned, settings)
        inputs = tuple((place, seen.steps) for place, seen in planned.inputs)
        result = back(planned.output.steps, planned.shape)
        _calls[key] = FunctionCall(kernel, inputs, planned.output.steps, result, settings.threads)
        return _calls[key]


def _compiled(planned: FunctionPlan, settings: CallSettings) -> Kernel:
    goal = planned.goal(settings.chosen(), settings.threads == 1)
    key = goal.spec, goal.signature, goal.name, settings
    if key not in _kernels:
        _kernels[key] = pipeline.compile(goal, progress=settings.progress, budget=settings.limits())
    return _kernels[key]


@cache
def host_target() -> Target:
    """Return the installed target that uses the most features of this CPU. Raises MorelloError without one."""
    targets = [installed().target(name) for name in installed().names]
    able = [target for target in targets if not missing_features(target.info.cpu_features)]
    if not able:
        names = ", ".join(target.name for target in targets) or "none"
        raise MorelloError(f"no target for this machine's CPU is installed; there are {names}", "install one for it")
    return max(able, key=lambda target: len(target.info.cpu_features))
