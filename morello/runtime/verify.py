"""Verifies a kernel against the meaning of its operation in numpy, and against the reference target."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice

import attrs
import numpy as np

from morello.errors import VerificationError
from morello.ir.impl import KernelCall, Node, walk
from morello.ir.ops import Operation
from morello.kernels.target import Target
from morello.runtime.arguments import Argument
from morello.runtime.arrays import aligned_bytes, pack, unpack
from morello.runtime.datasets import DataSet, Setting, data_sets
from morello.runtime.judge import Expectation, as_float64, expectations
from morello.runtime.kernel import Kernel
from morello.runtime.parts import Place, ResultPart, result_parts
from morello.runtime.reference import NAME, Reference

#: Bytes on both sides of every buffer that must stay as they are.
GUARD = 4096
#: Unused values after each step of an operand that need not be contiguous; odd, so that rows are unaligned.
_GAP = 3
#: Points of the iteration space from which on a data set is judged on part of its result, unless thorough.
_JUDGED = 2**28
#: Points that the slow reference computes at most, after its first data set, unless thorough.
_REFERENCE_BUDGET = 2**30
#: Numbers of threads whose results must be those of one thread, bit by bit; C does not say which NaN comes of two.
_THREADS = (2, 5)


@attrs.frozen
class DataSetResult:
    """The largest error on one data set, as a fraction of the bound: from the meaning, and from the reference.

    `reference` is None where the reference was left out, to save time.
    """

    name: str
    error: float
    reference: float | None


@attrs.frozen
class CheckReport:
    """The checks that a kernel has passed."""

    kernel: str
    operation: str
    target: str
    compiler: str
    seed: int
    results: tuple[DataSetResult, ...]
    #: The result was judged in so many parts, each data set on one of them.
    parts: int = 1
    #: An operation of a plugin that the reference does not know, so that there was only its meaning to compare with.
    unknown: str | None = None

    @property
    def worst(self) -> float:
        """Return the largest error of all, as a fraction of its bound."""
        return max((result.error for result in self.results), default=0.0)

    def __str__(self) -> str:
        head = f"{self.kernel}: {self.operation} for {self.target}, {self.compiler}, seed {self.seed}: passed"
        lines = [head, f"  {'data':<24}{'error / bound':>14}{f'from {NAME}':>22}"]
        for result in self.results:
            left_out = "–" if self.unknown else "left out (thorough)"
            against = left_out if result.reference is None else f"{result.reference:.3f}"
            lines.append(f"  {result.name:<24}{result.error:>14.3f}{against:>22}")
        if self.parts > 1:
            lines.append(f"  each on one of {self.parts} parts of the result")
        if self.unknown:
            lines.append(f"  {NAME} does not know {self.unknown}: compared with its meaning in numpy only")
        return "\n".join(lines)


class GuardedArray:
    """An operand's array between guard zones; knows what else was changed than its elements.

    It starts at a multiple of the alignment that the kernel asks for and no more than that, and is no more
    contiguous than the Spec says.
    """

    def __init__(self, argument: Argument, rng: np.random.Generator, guard: int = GUARD):
        form = argument.form
        self.argument = argument
        self._strides = form.strides_with_gaps(_GAP)
        self._start = -(-guard // (2 * argument.alignment)) * 2 * argument.alignment + argument.alignment
        self.bytes = form.extent(self._strides) * form.dtype.bytes
        self.memory = aligned_bytes(self._start + self.bytes + guard, max(4096, 2 * argument.alignment))
        self.memory[:] = rng.integers(0, 256, self.memory.size, np.uint8)
        self.array = form.place(self.memory, self._start, self._strides)
        self._before = self.memory.copy()

    def fill(self, packed: np.ndarray | None) -> None:
        """Set the elements: to `packed`, or to what no output should contain (NaN; bytes of 0xAA in integers)."""
        if packed is None:
            dtype = self.argument.form.dtype
            self.array.view(f"u{dtype.bytes}")[...] = int.from_bytes(
                bytes([0xFF if dtype.is_float else 0xAA] * dtype.bytes), "little"
            )
        else:
            self.array[...] = packed
        self._before = self.memory.copy()

    def changed(self) -> tuple[int, int] | None:
        """Return the first byte that changed but must not, from the array's start, and how many; None if none did."""
        now = self.memory.copy()
        if self.argument.writes:
            form = self.argument.form
            place = form.place(now, self._start, self._strides).view(f"u{form.dtype.bytes}")
            place[...] = form.place(self._before, self._start, self._strides).view(place.dtype)
        wrong = np.flatnonzero(now != self._before)
        return (int(wrong[0]) - self._start, len(wrong)) if len(wrong) else None


def verify(
    kernel: Kernel, seed: int = 0, thorough: bool = False, reference: Target | Reference | None = None
) -> CheckReport:
    """Run `kernel` on random and adversarial data and judge what it wrote.

    Of many points a data set is judged on part of the result, and all of them together on all of it. `thorough` adds
    data sets, judges each on all of its result and compares it with the reference, however long that takes; the
    reference is the installed reference_c unless it is given. Raises VerificationError for the first result that is
    wrong, or memory changed that is none of the kernel's outputs.
    """
    return Verification(kernel, seed, thorough=thorough, reference=reference).check(kernel)


@attrs.frozen
class _Case:
    """A data set, its values, and what the reference makes of part of them (None: not asked)."""

    data: DataSet
    values: list[np.ndarray]
    part: ResultPart
    #: The part of what is read.
    inputs: list[np.ndarray]
    others: list[np.ndarray] | None
    #: What each output must be, by whether subnormal numbers count as zero.
    expected: dict[bool, list[Expectation]] = attrs.field(factory=dict[bool, "list[Expectation]"])


class Verification:
    """The data that kernels of one Spec are verified on, and what they must compute: that of `kernel`, an example.

    With `sets`, only so many data sets are used, whose results are kept for all kernels.
    """

    def __init__(
        self,
        kernel: Kernel,
        seed: int = 0,
        *,
        thorough: bool = False,
        reference: Target | Reference | None = None,
        sets: int | None = None,
    ):
        self._seed, self._thorough, self._sets = seed, thorough, sets
        self._logical = kernel.spec.logical
        self._rng = np.random.default_rng(seed)
        self._guarded = [GuardedArray(argument, self._rng) for argument in kernel.arguments]
        if not isinstance(reference, Reference):
            reference = Reference(self._logical, kernel.compiler, reference)
        self._reference, self._unknown = reference, reference.unknown
        self._parts: list[ResultPart] = []
        self._kept: list[_Case] | None = None

    def check(self, kernel: Kernel) -> CheckReport:
        """Run a kernel on all data sets and judge what it wrote. Raises VerificationError."""
        logical, results = self._logical, list[DataSetResult]()
        for case in self._cases():
            got = _run(kernel, self._guarded, case.values, case.data)
            flushes = _flushes(kernel)
            if flushes not in case.expected:
                case.expected[flushes] = expectations(case.part.logical, case.inputs, case.data.integral, flushes)
            results.append(_judged(kernel, case.data, case.expected[flushes], got, case.others, case.part.written))
        return CheckReport(
            kernel.program.name,
            f"{logical.op}({'×'.join(map(str, logical.shape))})",
            kernel.target.name,
            str(kernel.compiler),
            self._seed,
            tuple(results),
            len(self._parts),
            self._unknown and _stranger(self._unknown, kernel.target),
        )

    def _cases(self) -> Iterable[_Case]:
        if self._sets is None:
            return self._made()
        if self._kept is None:
            self._kept = [*self._made()]
        return self._kept

    def _made(self) -> Iterator[_Case]:
        logical = self._logical
        op, shape = logical.op, tuple(map(int, logical.shape))
        setting = Setting.of(op, shape, [state.dtype for state in logical.states])
        sets = [*islice(data_sets(setting, self._thorough), self._sets)]
        self._parts = result_parts(logical, _JUDGED, 1 if self._thorough else len(sets))
        for number, data in enumerate(sets):
            values, part = data.arrays(self._seed, setting), self._parts[number % len(self._parts)]
            volume = int(op.volume(tuple(map(int, part.logical.shape))))
            affordable = self._thorough or number == 0 or (number + 1) * volume <= _REFERENCE_BUDGET
            inputs = [value for value, one in zip(values, logical.declared, strict=True) if one.reads]
            inputs = [value[place] for value, place in zip(inputs, part.read, strict=True)]
            others = self._reference(inputs, part.logical) if affordable and self._unknown is None else None
            yield _Case(data, values, part, inputs, others)


def _stranger(op: Operation, target: Target) -> str:
    """Return an operation of a plugin with the plugin's name, or with where it comes from if the target lacks it."""
    return f"{op} of plugin {target.origins.get(f'operation {op.name}', type(op).__module__)}"


def _run(
    kernel: Kernel, guarded: Sequence[GuardedArray], values: Sequence[np.ndarray], data: DataSet
) -> list[np.ndarray]:
    """Call the kernel, return the written operands as logical arrays. Raises VerificationError for stray writes, and if
    what it writes depends on the number of threads."""
    first = _call(kernel, guarded, values, data, 1)
    for threads in _THREADS if kernel.program.parallel else ():
        again = _call(kernel, guarded, values, data, threads)
        if not all(map(_same, first, again)):
            raise VerificationError(
                f"{kernel.program.name} on data set {data.name!r}: {threads} threads give other values than 1 does",
                "the emitter or a microkernel lets threads write to the same memory",
            )
    return first


def _call(
    kernel: Kernel, guarded: Sequence[GuardedArray], values: Sequence[np.ndarray], data: DataSet, threads: int
) -> list[np.ndarray]:
    tensors = kernel.spec.operands
    for array in guarded:
        operand = array.argument.operand
        array.fill(pack(values[operand], tensors[operand]) if array.argument.reads else None)
    kernel(*(one.array for one in guarded), threads=threads)
    for array in guarded:
        stray = array.changed()
        if stray is not None:
            raise VerificationError(
                f"{kernel.program.name} on data set {data.name!r}: {_stray(array, *stray)}",
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


def judge(
    kernel: Kernel,
    data: DataSet,
    inputs: Sequence[np.ndarray],
    got: Sequence[np.ndarray],
    others: Sequence[np.ndarray] | None = None,
) -> DataSetResult:
    """Judge what a kernel made of `inputs`, the values of the operands it reads; `others` is what the reference did.

    Raises VerificationError for the first wrong value.
    """
    expected = expectations(kernel.spec.logical, inputs, data.integral, _flushes(kernel))
    return _judged(kernel, data, expected, got, others, [(slice(0, None),) * one.ndim for one in got])


def _judged(
    kernel: Kernel,
    data: DataSet,
    expected: Sequence[Expectation],
    got: Sequence[np.ndarray],
    others: Sequence[np.ndarray] | None,
    places: Sequence[Place],
) -> DataSetResult:
    """Judge what a kernel wrote at these `places` by what is expected, and by what the reference did.

    Raises VerificationError.
    """
    outputs = [argument for argument in kernel.arguments if argument.writes]
    who = f"{kernel.program.name} on data set {data.name!r}"
    error, distance = 0.0, None if others is None else 0.0
    for position, (argument, expectation) in enumerate(zip(outputs, expected, strict=True)):
        place = places[position]
        mine, start = got[position][place], tuple(int(one.start) for one in place)
        error = max(error, _worst(who, argument, expectation, mine, "its meaning", start))
        if others is not None:
            _worst(f"{NAME} on data set {data.name!r}", argument, expectation, others[position], "its meaning", start)
            apart = _from_other(expectation, others[position])
            distance = max(distance or 0.0, _worst(who, argument, apart, mine, NAME, start))
    return DataSetResult(data.name, error, distance)


def _flushes(kernel: Kernel) -> bool:
    """Return True if one of the program's microkernels takes subnormal numbers for zero."""
    calls = (node.expansion for node in walk(kernel.impl) if isinstance(node, Node))
    return any(kernel.target.kernels_by_name[one.kernel].flush_to_zero for one in calls if isinstance(one, KernelCall))


def _from_other(expectation: Expectation, other: np.ndarray) -> Expectation:
    """Return what a kernel must give next to another one's result, which may be off by the bound itself."""
    if not expectation.dtype.is_float:
        return attrs.evolve(expectation, values=other)
    overflowed = expectation.loose & ~np.isfinite(as_float64(other))
    values = np.where(overflowed, expectation.values, as_float64(other))
    return attrs.evolve(expectation, values=values, bound=2 * expectation.bound)


def _worst(
    who: str, argument: Argument, expectation: Expectation, got: np.ndarray, source: str, start: tuple[int, ...]
) -> float:
    """Return the largest error as a fraction of the bound. Raises VerificationError if that is more than 1."""
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
        "the operation's meaning is in morello/ir/ops; a wrong microkernel or emitter is the likely cause",
    )
