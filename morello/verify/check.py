"""Verify functions against reference semantics in numpy, and against the reference target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import attrs
import numpy as np

from morello.errors import VerificationError
from morello.ir.impl import KernelCall, Node, walk
from morello.ir.ops import Operation
from morello.kernels.target import Target
from morello.run.arguments import Argument
from morello.run.arrays import aligned_bytes, pack, unpack
from morello.run.function import NativeFunction
from morello.verify.datasets import DataSet, DataSetting, data_sets
from morello.verify.reference import REFERENCE_NAME, Reference, native_compiler
from morello.verify.result_slices import ResultSlice, Slices, result_slices
from morello.verify.tolerance import Expectation, as_float64, expectations

#: The source of expected values in messages.
SEMANTICS = "reference semantics"
#: Guard bytes on both sides of each buffer.
GUARD = 4096
#: Unused values after each row of an operand that is not contiguous; odd, so that rows are unaligned.
_GAP = 3
#: Points of the iteration space in a slice of the result that a data set checks, unless thorough.
_SLICE_POINTS = 2**28
#: The most points that the slow reference target computes after its first data set, unless thorough.
_REFERENCE_BUDGET = 2**30
#: Numbers of threads whose results must equal those of one thread bit by bit, except NaN: C leaves its bits open.
_THREADS = (2, 5)


@attrs.frozen
class DataSetResult:
    """The largest error on one data set as a fraction of its tolerance: from reference semantics, from the reference.

    `reference` is None if the reference was skipped to save time.
    """

    name: str
    error: float
    reference: float | None


@attrs.frozen
class CheckReport:
    """The checks that a function has passed."""

    kernel: str
    operation: str
    target: str
    compiler: str
    seed: int
    results: tuple[DataSetResult, ...]
    #: The slices of the result; each data set checks one.
    slices: int = 1
    #: A plugin's operation that the reference lacks, so that only reference semantics were compared.
    unknown: str | None = None

    @property
    def worst(self) -> float:
        """Return the largest error as a fraction of its tolerance."""
        return max((result.error for result in self.results), default=0.0)

    def __str__(self) -> str:
        head = f"{self.kernel}: {self.operation} for {self.target}, {self.compiler}, seed {self.seed}: passed"
        lines = [head, f"  {'data':<24}{'error / bound':>14}{f'from {REFERENCE_NAME}':>22}"]
        for result in self.results:
            skipped = "–" if self.unknown else "skipped (thorough)"
            against = skipped if result.reference is None else f"{result.reference:.3f}"
            lines.append(f"  {result.name:<24}{result.error:>14.3f}{against:>22}")
        if self.slices > 1:
            lines.append(f"  each on one of {self.slices} slices of the result")
        if self.unknown:
            lines.append(f"  {REFERENCE_NAME} lacks {self.unknown}: compared with its semantics in numpy only")
        return "\n".join(lines)


class GuardedArray:
    """An operand's array between guard zones, to detect writes outside of its elements.

    It has the alignment and contiguity that the kernel requires, and no more.
    """

    def __init__(self, argument: Argument, rng: np.random.Generator):
        form = argument.form
        self.argument = argument
        self._strides = form.strides_with_gaps(_GAP)
        self._start = -(-GUARD // (2 * argument.alignment)) * 2 * argument.alignment + argument.alignment
        self.bytes = form.extent(self._strides) * form.dtype.bytes
        self.memory = aligned_bytes(self._start + self.bytes + GUARD, max(4096, 2 * argument.alignment))
        self.memory[:] = rng.integers(0, 256, self.memory.size, np.uint8)
        self.array = form.place(self.memory, self._start, self._strides)
        self._before = self.memory.copy()

    def fill(self, packed: np.ndarray | None) -> None:
        """Set the elements to `packed`, or to a poison value: NaN, or bytes of 0xAA in integers."""
        if packed is None:
            dtype = self.argument.form.dtype
            self.array.view(f"u{dtype.bytes}")[...] = int.from_bytes(
                bytes([0xFF if dtype.is_float else 0xAA] * dtype.bytes), "little"
            )
        else:
            self.array[...] = packed
        self._before = self.memory.copy()

    def changed(self) -> tuple[int, int] | None:
        """Return the offset of the first illegally changed byte from the array's start and their number, or None."""
        now = self.memory.copy()
        if self.argument.writes:
            form = self.argument.form
            place = form.place(now, self._start, self._strides).view(f"u{form.dtype.bytes}")
            place[...] = form.place(self._before, self._start, self._strides).view(place.dtype)
        wrong = np.flatnonzero(now != self._before)
        return (int(wrong[0]) - self._start, len(wrong)) if len(wrong) else None


def verify(
    function: NativeFunction, seed: int = 0, thorough: bool = False, reference: Target | Reference | None = None
) -> CheckReport:
    """Run a function on random and adversarial data and check its results.

    In a large iteration space, each data set checks a slice of the result, and together they check all of it.
    `thorough` adds data sets, and checks all results of each, also against the reference, however long that takes. The
    reference is the installed reference_c by default. Raises VerificationError for the first wrong result, or for
    changes of memory outside of the outputs.
    """
    return Verification(function, seed, thorough=thorough, reference=reference).check(function)


@attrs.frozen
class _VerificationCase:
    """A data set, its values, and the reference's results for a slice (None: skipped)."""

    data: DataSet
    values: list[np.ndarray]
    slice: ResultSlice
    #: The inputs of the slice.
    inputs: list[np.ndarray]
    from_reference: list[np.ndarray] | None
    #: The expectation of each output, by whether subnormal numbers may be flushed to zero.
    expected: dict[bool, list[Expectation]] = attrs.field(factory=dict[bool, "list[Expectation]"])


class Verification:
    """The data and expected results for functions of the Spec of `function`.

    With `sets`, it uses only that many data sets, and stores their expected results for all functions.
    """

    def __init__(
        self,
        function: NativeFunction,
        seed: int = 0,
        *,
        thorough: bool = False,
        reference: Target | Reference | None = None,
        sets: int | None = None,
    ):
        self._seed, self._thorough, self._sets = seed, thorough, sets
        self._logical = function.spec.logical
        self._rng = np.random.default_rng(seed)
        self._guarded = [GuardedArray(argument, self._rng) for argument in function.arguments]
        if not isinstance(reference, Reference):
            reference = Reference(self._logical, native_compiler(function.compiler), reference)
        self._reference, self._unknown = reference, reference.unknown
        self._slices: list[ResultSlice] = []
        self._kept: list[_VerificationCase] | None = None

    def check(self, function: NativeFunction) -> CheckReport:
        """Run a function on all data sets and check its results. Raises VerificationError."""
        logical, results = self._logical, list[DataSetResult]()
        for case in self._cases():
            got = _run(function, self._guarded, case.values, case.data)
            flush = _flushes_to_zero(function)
            if flush not in case.expected:
                case.expected[flush] = expectations(case.slice.logical, case.inputs, case.data.integral, flush)
            expected, written = case.expected[flush], case.slice.written
            results.append(_check_slice(function, case.data, expected, got, case.from_reference, written))
        return CheckReport(
            function.program.name,
            f"{logical.op}({'×'.join(map(str, logical.shape))})",
            function.target.name,
            str(function.compiler),
            self._seed,
            tuple(results),
            len(self._slices),
            self._unknown and _plugin_operation(self._unknown, function.target),
        )

    def _cases(self) -> Iterable[_VerificationCase]:
        if self._sets is None:
            return self._made()
        if self._kept is None:
            self._kept = [*self._made()]
        return self._kept

    def _made(self) -> Iterator[_VerificationCase]:
        logical = self._logical
        op, shape = logical.op, tuple(map(int, logical.shape))
        setting = DataSetting.of(op, shape, [state.dtype for state in logical.states])
        sets = [*islice(data_sets(setting, self._thorough), self._sets)]
        self._slices = result_slices(logical, _SLICE_POINTS, 1 if self._thorough else len(sets))
        for number, data in enumerate(sets):
            values, part = data.arrays(self._seed, setting), self._slices[number % len(self._slices)]
            volume = int(op.volume(tuple(map(int, part.logical.shape))))
            affordable = self._thorough or number == 0 or (number + 1) * volume <= _REFERENCE_BUDGET
            inputs = [value for value, one in zip(values, logical.declared, strict=True) if one.reads]
            inputs = [value[place] for value, place in zip(inputs, part.read, strict=True)]
            from_reference = self._reference(inputs, part.logical) if affordable and self._unknown is None else None
            yield _VerificationCase(data, values, part, inputs, from_reference)


def _plugin_operation(op: Operation, target: Target) -> str:
    """Return a plugin's operation with the name of the plugin, or of its module."""
    return f"{op} of plugin {target.origins.get(f'operation {op.name}', type(op).__module__)}"


def _run(
    function: NativeFunction, guarded: Sequence[GuardedArray], values: Sequence[np.ndarray], data: DataSet
) -> list[np.ndarray]:
    """Call a function; return the outputs as logical arrays.

    Raises VerificationError for stray writes, and if results depend on the number of threads.
    """
    first = _call(function, guarded, values, data, 1)
    for threads in _THREADS if function.program.parallel else ():
        again = _call(function, guarded, values, data, threads)
        if not all(map(_same, first, again)):
            raise VerificationError(
                f"{function.program.name} on data set {data.name!r}: {threads} threads give other values than 1 does",
                "the emitter or a microkernel lets threads write to the same memory",
            )
    return first


def _call(
    function: NativeFunction, guarded: Sequence[GuardedArray], values: Sequence[np.ndarray], data: DataSet, threads: int
) -> list[np.ndarray]:
    tensors = function.spec.operands
    for array in guarded:
        operand = array.argument.operand
        array.fill(pack(values[operand], tensors[operand]) if array.argument.reads else None)
    function([one.array for one in guarded], threads, GUARD)
    for array in guarded:
        stray = array.changed()
        if stray is not None:
            raise VerificationError(
                f"{function.program.name} on data set {data.name!r}: {_stray(array, *stray)}",
                "the emitter or a microkernel writes past a tile or through an input pointer; "
                "morello.testing.sanitize finds the place",
            )
    return [unpack(one.array, tensors[one.argument.operand]) for one in guarded if one.argument.writes]


def _same(first: np.ndarray, other: np.ndarray) -> bool:
    if first.dtype.kind in "iu":
        return np.array_equal(first, other)
    unlike = first.view(f"u{first.itemsize}") != other.view(f"u{other.itemsize}")
    return not np.any(unlike & ~(np.isnan(first) & np.isnan(other)))


def _stray(array: GuardedArray, first: int, count: int) -> str:
    name = f"operand {array.argument.index} ({array.argument.name})"
    if 0 <= first < array.bytes:
        what = "gaps between its elements were" if array.argument.writes else "is an input but was"
        return f"{name}: {what} overwritten, {count} bytes, the first at byte {first}"
    side = f"{-first} bytes before it" if first < 0 else f"{first - array.bytes} bytes after its end"
    return f"{name}: {count} bytes outside of it were overwritten, the first {side}"


def check_results(
    function: NativeFunction, data: DataSet, inputs: Sequence[np.ndarray], got: Sequence[np.ndarray]
) -> DataSetResult:
    """Check the results of a function for `inputs`, the values of the operands it reads.

    Raises VerificationError for the first wrong value.
    """
    expected = expectations(function.spec.logical, inputs, data.integral, _flushes_to_zero(function))
    return _check_slice(function, data, expected, got, None, [(slice(0, None),) * one.ndim for one in got])


def _check_slice(
    function: NativeFunction,
    data: DataSet,
    expected: Sequence[Expectation],
    got: Sequence[np.ndarray],
    from_reference: Sequence[np.ndarray] | None,
    slices: Sequence[Slices],
) -> DataSetResult:
    """Check slices of results by their expectations and against the reference's. Raises VerificationError."""
    outputs = [argument for argument in function.arguments if argument.writes]
    who = f"{function.program.name} on data set {data.name!r}"
    error, distance = 0.0, None if from_reference is None else 0.0
    for position, (argument, expectation) in enumerate(zip(outputs, expected, strict=True)):
        place = slices[position]
        mine, start = got[position][place], tuple(int(one.start) for one in place)
        error = max(error, _worst(who, argument, expectation, mine, SEMANTICS, start))
        if from_reference is not None:
            other = from_reference[position]
            _worst(f"{REFERENCE_NAME} on data set {data.name!r}", argument, expectation, other, SEMANTICS, start)
            apart = _from_other(expectation, other)
            distance = max(distance or 0.0, _worst(who, argument, apart, mine, REFERENCE_NAME, start))
    return DataSetResult(data.name, error, distance)


def _flushes_to_zero(function: NativeFunction) -> bool:
    """Return whether one of the program's microkernels flushes subnormal numbers to zero."""
    calls = (node.expansion for node in walk(function.impl) if isinstance(node, Node))
    return any(
        function.target.kernels_by_name[one.kernel].flush_to_zero for one in calls if isinstance(one, KernelCall)
    )


def _from_other(expectation: Expectation, other: np.ndarray) -> Expectation:
    """Return the expectation relative to the reference's result, which may have the same error itself."""
    if not expectation.dtype.is_float:
        return attrs.evolve(expectation, values=other)
    overflowed = expectation.loose & ~np.isfinite(as_float64(other))
    values = np.where(overflowed, expectation.values, as_float64(other))
    return attrs.evolve(expectation, values=values, bound=2 * expectation.bound)


def _worst(
    who: str, argument: Argument, expectation: Expectation, got: np.ndarray, source: str, start: tuple[int, ...]
) -> float:
    """Return the largest error as a fraction of its tolerance. Raises VerificationError if it exceeds 1."""
    errors = expectation.errors(got)
    place = tuple(map(int, np.unravel_index(int(np.argmax(errors)), errors.shape)))
    worst = float(errors[place])
    if worst <= 1:
        return worst
    count = int(np.count_nonzero(~(errors <= 1)))
    bound = float(expectation.bound[place])
    where = tuple(map(sum, zip(start, place, strict=True)))
    raise VerificationError(
        f"{who}: operand {argument.index} ({argument.name}) at {where}: "
        f"expected {expectation.values[place]} by {source}, got {got[place]}, "
        f"allowed error {bound:.3g} ({count} of {errors.size} values are wrong)",
        "the operation is defined in morello/ir/ops; a microkernel or emitter is probably wrong",
    )
