"""Compile kernels for the forms of arrays, and cache them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from functools import cache, partial
from numbers import Real
from operator import attrgetter, is_
from typing import Any, TypedDict

import attrs
import numpy as np

from morello.api import pipeline
from morello.api.functions.batches import Batches, for_parts
from morello.api.functions.conversion import as_array, as_arrays
from morello.api.functions.views import COPY, ArrayView, Steps, back, through
from morello.api.goals import Goal
from morello.api.kernel import CheckedCall, Kernel, exported
from morello.errors import ArgumentError, MorelloError, suggestion
from morello.host import NATIVE
from morello.ir.ops import Operation
from morello.ir.signature import Signature
from morello.ir.spec import LogicalSpec
from morello.kernels.target import Target
from morello.plugins.registry import installed
from morello.progress import Listener
from morello.run.dlpack import detached, to_library_of
from morello.run.runner import is_native
from morello.search.budget import SearchBudget


class FunctionOptions(TypedDict, total=False):
    """Options of all functions.

    `target` is a target or its name, by default the one for this machine; `cpu` is that of `parse`, by default "native"
    without a `target`. `time_limit` is the seconds of a search. `budget` and `progress` are those of `Goal.synthesize`.
    With `threads=1`, the kernel has no parallel loops; other numbers are those of `Kernel`. With `copy=False`,
    an array that no kernel takes in place is an error.
    """

    target: str | Target | None
    cpu: str | None
    time_limit: float | None
    budget: SearchBudget | None
    progress: Listener
    threads: int | None
    copy: bool


@attrs.frozen
class CallSettings:
    """The options of a call. `progress` does not affect equality."""

    target: str | Target | None = None
    cpu: str | None = None
    time_limit: float | None = None
    budget: SearchBudget | None = None
    progress: Listener = attrs.field(default=None, eq=False)
    threads: int | None = None
    copy: bool = True

    def __attrs_post_init__(self) -> None:
        if not isinstance(self.copy, bool):
            raise MorelloError(f"copy is {self.copy!r}", "True copies arrays if need be, False never")
        if self.time_limit is not None and not (isinstance(self.time_limit, Real) and self.time_limit > 0):
            raise MorelloError(f"time_limit is {self.time_limit!r}", "it is a number of seconds above 0")
        if self.time_limit is not None and self.budget is not None:
            raise MorelloError("both time_limit and budget", "pass budget=SearchBudget(seconds=..., ...)")

    def limits(self) -> SearchBudget:
        """Return the budget of a search."""
        if self.budget is not None:
            return self.budget
        default = SearchBudget.default()
        return default if self.time_limit is None else SearchBudget(self.time_limit, memory=default.memory)

    def chosen(self) -> Target:
        """Return the target. Raises MorelloError for an unknown name."""
        if self.target is None:
            return host_target(self.cpu or NATIVE)
        if isinstance(self.target, Target) and self.cpu is not None:
            raise MorelloError("both a Target and cpu=", "pass the target's name, or leave cpu= out")
        return installed().target(self.target, cpu=self.cpu) if isinstance(self.target, str) else self.target


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


@attrs.frozen(eq=False)
class Function:
    """A function on arrays, and the names of its parameters.

    `torch` maps torch's names to parameters; options in `lacking` may only be None, False or 0.
    """

    name: str
    plan: Planner
    parameters: tuple[str, ...] = ()
    torch: Mapping[str, str] = {}
    lacking: Collection[str] = ()

    def settled(
        self, parameters: tuple[Hashable, ...], options: Mapping[str, Any]
    ) -> tuple[tuple[Hashable, ...], CallSettings]:
        """Return parameters and options of a call. Raises ArgumentError for options that the function lacks."""
        given = dict(zip(self.parameters, parameters, strict=False))
        settings = {}
        for name, value in options.items():
            if name in _OPTIONS:
                settings[name] = value
            elif name in self.torch:
                given[self.torch[name]] = value
            elif name not in self.lacking:
                names = (*self.parameters, "out", *_OPTIONS)
                hint = suggestion(name, (*names, *self.torch), f"its options are {', '.join(names)}")
                raise ArgumentError(f"{self.name} has no option {name!r}", hint)
            elif not (value is None or (isinstance(value, Real) and not value)):
                raise ArgumentError(f"{self.name} has no {name}", "leave it out, or compute each step by its function")
        return (*given.values(), *parameters[len(given) :]), CallSettings(**settings)


_OPTIONS = tuple(attrs.fields_dict(CallSettings))


@attrs.frozen
class FunctionCall:
    """A kernel, and how a function's arrays become its operands and its output the function's result.

    If `out` copies, the result is written to it after the call.
    """

    kernel: Kernel
    inputs: tuple[tuple[int, Steps], ...]
    out: Steps
    copies: bool
    result: Steps
    threads: int | None

    def __call__(self, arrays: Sequence[Any], out: Any) -> Any:
        given = [through(arrays[place], steps) if steps else arrays[place] for place, steps in self.inputs]
        if out is not None and not self.copies:
            self.kernel(*given, out=through(out, self.out) if self.out else out, threads=self.threads)
            return out
        made = self.kernel(*given, threads=self.threads)
        made = through(made, self.result) if made.shape != self.result[0][1] or self.result[1:] else made
        return made if out is None else _written(out, made)

    def on(self, arrays: Sequence[Any], allocates: bool) -> CheckedCall | None:
        """Return a call of the kernel on such arrays and such a result, the last of them; None if values are copied."""
        steps = [*(steps for _, steps in self.inputs), self.out]
        copies = self.copies or any(step == COPY for some in steps for step, _ in some)
        if copies or [place for place, _ in self.inputs] != [*range(len(self.inputs))]:
            return None
        operands = [through(array, some) for array, some in zip(arrays, steps, strict=True)]
        return self.kernel.call_on(arrays, operands, allocates)


@attrs.frozen
class EmptyCall:
    """Gives the result of arrays without values: zeros."""

    shape: tuple[int, ...]
    dtype: np.dtype

    def __call__(self, arrays: Sequence[Any], out: Any) -> Any:
        if out is not None:
            return _written(out, 0)
        made, give = np.zeros(self.shape, self.dtype), to_library_of(arrays[0])
        return give(made) if give else made


def _written(out: Any, values: Any) -> Any:
    """Return `out` with values written to it. Raises ArgumentError for a read-only array."""
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise ArgumentError("out is read-only", "pass an array that can be written, or leave it out")
    out[...] = values
    return out


@attrs.frozen
class _QuickCall:
    """A call of a function with these values of parameters and options, as a call of its kernel on the same arrays.

    None for arrays that have no such call.
    """

    values: tuple[Any, ...]
    call: CheckedCall | None


class _QuickCalls(threading.local):
    """Quick calls of a thread, by the function, the names of its options and the shapes of its arrays."""

    def __init__(self) -> None:
        self.by_shapes: dict[Hashable, list[_QuickCall]] = {}


#: Quick calls held for the same shapes, and shapes for which they are held.
_MOST_QUICK_CALLS, _MOST_SHAPES = 4, 4096
_quick = _QuickCalls()
_shape = attrgetter("shape")
_DEFAULT = CallSettings()
_lock = threading.RLock()
_calls: dict[Hashable, FunctionCall] = {}
_kernels: dict[Hashable, Kernel] = {}
_batches = Batches()


def call(
    function: Function, parameters: tuple[Hashable, ...], arrays: Sequence[Any], out: Any, options: FunctionOptions
) -> Any:
    """Call a function, with a kernel compiled at the first call for such arrays.

    Results are arrays of the first one's library, or `out`. Raises ArgumentError for arrays that do not fit.
    """
    given = arrays if out is None else (*arrays, out)
    values = parameters
    try:
        shapes = (function, out is None, *map(_shape, given))
        if options:
            shapes, values = (*shapes, *options), (*parameters, *options.values())
        known = _quick.by_shapes.get(shapes, ())
    except (AttributeError, TypeError):  # lists, numbers
        return _call(function, parameters, arrays, out, options)[1]
    for quick in known:
        # Equal values may differ: 1.0 equals 1, but is not an axis.
        same = quick.values is values or all(map(is_, quick.values, values))
        if same and quick.call and (made := quick.call.fast.call(*given)) is not False:
            return out if made is True else exported(made, quick.call.export)
    call, made = _call(function, parameters, arrays, out, options)
    if call and len(known) < _MOST_QUICK_CALLS:
        if len(_quick.by_shapes) >= _MOST_SHAPES:
            _quick.by_shapes.clear()
        quick = _QuickCall(values, call.on((*arrays, made), out is None))
        _quick.by_shapes.setdefault(shapes, []).append(quick)
    return made


def _call(
    function: Function, parameters: tuple[Hashable, ...], arrays: Sequence[Any], out: Any, options: FunctionOptions
) -> tuple[FunctionCall | None, Any]:
    """Call a function. Return its result, and the call if it takes just these arrays."""
    parameters, settings = function.settled(parameters, options) if options else (parameters, _DEFAULT)
    forms: list[Hashable] = [function, parameters, repr(parameters), settings]  # 1.0 equals 1, but is not an axis
    for array in (*arrays, out) if out is not None else arrays:
        if type(array) is not np.ndarray:
            return _call_foreign(function, parameters, arrays, out, settings)
        forms.append((array.dtype, array.shape, array.strides))
    known = _cached_call(key := tuple(forms)) or _compile_call(key, function, parameters, arrays, out, settings)
    return known if isinstance(known, FunctionCall) else None, known(arrays, out)


def _cached_call(key: Hashable) -> FunctionCall | None:
    """Return the cached call for such arrays, or None. Raises ArgumentError for unhashable parameters."""
    try:
        return _calls.get(key)
    except TypeError as error:
        raise ArgumentError(
            f"a parameter of a wrong type: {error}", "pass numbers, words, or tuples of numbers"
        ) from None


def _call_foreign(
    function: Function, parameters: tuple[Hashable, ...], arrays: Sequence[Any], out: Any, settings: CallSettings
) -> tuple[FunctionCall | None, Any]:
    """Call as `_call` does with arrays of other libraries: through views of torch, or through numpy."""
    everything = [detached(one) for one in (arrays if out is None else (*arrays, out))]
    first, give = everything[0], None
    kind, as_given = type(first), all(map(is_, everything, (*arrays, out)))
    if not (hasattr(kind, "permute") and hasattr(kind, "stride")) or any(type(one) is not kind for one in everything):
        give, as_given = to_library_of(first), False
        everything = as_arrays(everything[: len(arrays)], everything[len(arrays) :], settings.copy)
        forms = [(one.dtype, one.shape, one.strides) for one in everything]
    else:
        try:
            forms = [(one.dtype, one.shape, one.stride()) for one in everything]
        except RuntimeError:  # sparse tensors have none
            forms = [as_array(one).strides for one in everything]
    arrays, written = everything[: len(arrays)], None if out is None else everything[-1]
    key = (function, parameters, repr(parameters), settings, kind, *forms)
    known = _cached_call(key) or _compile_call(key, function, parameters, arrays, written, settings)
    made = known(arrays, written)
    result = out if out is not None else made if give is None else give(made)
    return known if as_given and isinstance(known, FunctionCall) else None, result


def _compile_call(
    key: Hashable,
    function: Function,
    parameters: tuple[Hashable, ...],
    arrays: Sequence[Any],
    out: Any,
    settings: CallSettings,
) -> FunctionCall | EmptyCall:
    """Compile and cache the call for arrays like these. Threads take turns."""
    views = [as_array(array) for array in arrays]
    planned = function.plan(*parameters, views, None if out is None else as_array(out))
    output = planned.output
    for view in (*(view for _, view in planned.inputs), output):
        if view.copied and not settings.copy:
            raise view.copied
    if any(0 in view.shape for view in (*views, *(view for _, view in planned.inputs))):
        return EmptyCall(planned.shape, output.dtype.numpy)
    with _lock:
        if key in _calls:
            return _calls[key]
        kernel = _compiled(planned, settings)
        inputs = tuple((place, seen.steps) for place, seen in planned.inputs)
        copies = output.copied is not None
        result = (*back(output.steps, planned.shape), *([(COPY, None)] if copies and out is None else []))
        _calls[key] = FunctionCall(kernel, inputs, output.steps, copies, result, settings.threads)
        return _calls[key]


def _compiled(planned: FunctionPlan, settings: CallSettings) -> Kernel:
    goal = planned.goal(settings.chosen(), settings.threads == 1)
    options = attrs.evolve(settings, copy=True)
    key = goal.spec, goal.signature, goal.name, options

    def compile_within(budget: SearchBudget, goal: Goal) -> Kernel:
        return pipeline.compile(goal, progress=settings.progress, budget=budget)

    if key not in _kernels:
        budget = settings.limits()
        each, whole = partial(compile_within, budget), partial(compile_within, for_parts(budget))
        _kernels[key] = _batches.kernel(goal, options, each, whole)
    return _kernels[key]


@cache
def host_target(cpu: str = NATIVE) -> Target:
    """Return the installed target that uses the most features of this CPU, with the optional features of `cpu`.

    Derived targets are used only by name. Raises MorelloError without one.
    """
    registry = installed()
    targets = [registry.target(name) for name in registry.names if registry.base_of(name) is None]
    able = [target for target in targets if is_native(target.info)]
    if not able:
        names = ", ".join(target.name for target in targets) or "none"
        raise MorelloError(f"no target for this machine's CPU is installed; there are {names}", "install one for it")
    return registry.target(max(able, key=lambda target: len(target.info.cpu_features)).name, cpu=cpu)
