"""Time the calls of microkernels, independent ones and such that use each other's results, and fit their costs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import attrs
import numpy as np

from morello.calibration.levels import fitted
from morello.calibration.meter import UnitMeter
from morello.errors import SpecError
from morello.host import missing_features
from morello.ir.ops.base import Operand
from morello.ir.program import Program
from morello.ir.spec import LogicalSpec, Spec
from morello.ir.tensor import OperandState, TensorSpec
from morello.kernels.microkernel import Microkernel, computed_vectors, touching
from morello.kernels.pattern import Multiple
from morello.kernels.site import KernelSite, OperandSite
from morello.kernels.target import Target
from morello.rewrites.select import Select, checked_cost
from morello.schedule import rewrite_leaf
from morello.testing.batch import translation_unit, units
from morello.testing.conformance import accepted_specs

#: Data types of a kernel that are timed, and sizes for each.
_TYPES, _SIZES = 3, 3
#: Sizes that free dimensions are given, and the most points of an iteration space.
_TRIED, _LARGEST = (2, 4, 8, 16, 32, 64), 4096
#: Calls of a round; those that read what they write have an operand in memory of their own.
_CALLS = 8
#: Two numbers of rounds: the difference of their times excludes loads and stores of operands in registers.
_ROUNDS = (64, 192)
#: The least cost of a call, in units: calls that cost nothing can be measured as less than that.
_LEAST = 1e-3
#: Bytes of operands: as numbers of all types they are neither large nor subnormal.
_FILLED = "0x3f"
#: The C constraints of vector and float registers, and the number of rounds.
_HEAD = """\
#if defined(__AVX512F__)
#define MORELLO_VECTOR "v"
#define MORELLO_FLOAT "v"
#elif defined(__x86_64__)
#define MORELLO_VECTOR "x"
#define MORELLO_FLOAT "x"
#elif defined(__aarch64__)
#define MORELLO_VECTOR "w"
#define MORELLO_FLOAT "w"
#elif defined(__riscv)
#define MORELLO_VECTOR "vr"
#define MORELLO_FLOAT "f"
#else
#define MORELLO_VECTOR "X"
#define MORELLO_FLOAT "X"
#endif
static ptrdiff_t morello_rounds;
"""


@attrs.frozen
class Timing:
    """The costs of a call on one Spec, in units.

    `taken` is that of independent calls, `chained` that of calls that read what the one before wrote, None for kernels
    that read none of it. `declared` is the target's cost, `touched` the part of it for touching operands in memory.
    """

    spec: Spec
    vectors: int
    taken: float
    chained: float | None
    declared: int
    touched: int


@attrs.frozen
class KernelTiming:
    """The timings of a kernel, smallest Spec first; none if no Spec was found. `costs` need some."""

    kernel: str
    timings: tuple[Timing, ...]
    declares_cost: bool

    @property
    def costs(self) -> tuple[int, int, int]:
        """Return the fitted costs as profiles have them: each vector, once per call, and at least."""
        points = [(one.vectors, one.taken) for one in self.timings]
        each, once = fitted(points, [one.touched for one in self.timings])
        return round(each), round(once), round(min(one.chained or 0.0 for one in self.timings))

    @property
    def error(self) -> float:
        """Return the mean relative error of the fit."""
        each, once, _ = self.costs
        return float(np.mean([abs((one.touched + each * one.vectors + once) / one.taken - 1) for one in self.timings]))


def time_kernels(meter: UnitMeter, target: Target) -> list[KernelTiming]:
    """Return the timings of all kernels of a target, also of those that need optional CPU features this machine has."""
    kernels = [one for one in (*target.kernels, *target.unavailable) if not missing_features(one.cpu_features)]
    specs = {one.name: timed_specs(target, one) for one in kernels}
    programs: dict[tuple[str, Spec, bool], Program] = {}
    for kernel in kernels:
        for spec in specs[kernel.name]:
            for chained in (False, True) if _chain(spec.logical) else (False,):
                programs[kernel.name, spec, chained] = _program(target, kernel, spec, chained, f"timed_{len(programs)}")
    taken: dict[str, float] = {}
    for group in units(programs.values()):
        taken |= _times(meter, group)
    found = {key: taken[program.name] for key, program in programs.items()}
    return [
        KernelTiming(
            kernel.name,
            tuple(
                Timing(
                    spec,
                    int(computed_vectors(spec.logical)),
                    found[kernel.name, spec, False],
                    found.get((kernel.name, spec, True)),
                    int(checked_cost(kernel, spec.logical, target)),
                    int(touching()(spec.logical, target)),
                )
                for spec in specs[kernel.name]
            ),
            kernel.cost is not None,
        )
        for kernel in kernels
    ]


def timed_specs(target: Target, kernel: Microkernel) -> list[Spec]:
    """Return Specs of a few data types and sizes that a kernel accepts, smallest first, near the core if it can be.

    There are none if it accepts no contiguous operands.
    """
    found: dict[tuple[str, ...], dict[int, Spec]] = {}
    for drawn in accepted_specs(target, kernel, _TYPES, all_types=False):
        types = tuple(state.dtype.name for state in drawn.logical.states)
        near = _near(target, kernel, drawn.logical)
        if near is not None and (types in found or len(found) < _TYPES):
            sizes = {int(computed_vectors(one.logical)): one for one in _resized(target, kernel, near)}
            found[types] = {**sizes, **found.get(types, {})}
    chosen: list[Spec] = []
    for sizes in found.values():
        order = sorted(sizes)
        picked = {order[(len(order) - 1) * number // (_SIZES - 1)] for number in range(_SIZES)}
        chosen += [sizes[one] for one in picked]
    return sorted(chosen, key=lambda spec: int(computed_vectors(spec.logical)))


def _near(target: Target, kernel: Microkernel, logical: LogicalSpec) -> LogicalSpec | None:
    """Return a Spec with contiguous, aligned operands, in the fastest memory if possible; None if not accepted."""
    memory = next(level.name for level in target.levels if not level.is_register)
    for fastest in (True, False):
        states: list[OperandState] = []
        for tensor in logical.operands:
            state = tensor.state
            if not target.level(state.level).is_register and state.layout is not None:
                near = target.state(memory if fastest else state.level, state.dtype, state.layout)
                state = TensorSpec(tensor.shape, near).canonical().state
            states.append(state)
        moved = attrs.evolve(logical, states=tuple(states))
        if kernel.accepts(moved):
            return moved
    return None


def _resized(target: Target, kernel: Microkernel, logical: LogicalSpec) -> Iterator[Spec]:
    """Yield a Spec, and it with other sizes of one dimension, where the kernel accepts that and registers suffice."""
    types, sizes = [state.dtype for state in logical.states], tuple(map(int, logical.shape))
    rules = kernel.size_rules(len(logical.shape)) or ()
    shapes = set[tuple[int, ...]]()
    for dim, (size, rule) in enumerate(zip(sizes, rules, strict=True)):
        # A dimension of size 1 is not in layouts.
        tried = [rule.of * times for times in (1, 2, 4)] if isinstance(rule, Multiple) else _TRIED
        if size > 1 and not isinstance(rule, int):
            shapes |= {(*sizes[:dim], other, *sizes[dim + 1 :]) for other in tried}
    yield target.spec(logical)
    for shape in sorted(shapes):
        other = attrs.evolve(logical, shape=shape)
        if np.prod(shape) > _LARGEST or other.op.refusal(shape, types) is not None:
            continue
        try:
            spec = target.spec(other)
        except (SpecError, ValueError):
            continue
        if spec.logical == other and kernel.accepts(other) and _fits(target, kernel, other):
            yield spec


def _fits(target: Target, kernel: Microkernel, logical: LogicalSpec) -> bool:
    """Return True if operands and temporaries fit into registers, and into half of the fastest memory, with copies."""
    footprints = [target.footprint(tensor) for tensor in logical.operands]
    fast = next(level for level in target.levels if not level.is_register)
    for level, *taken in zip(target.levels, *footprints, strict=True):
        needed = sum(map(int, taken)) + int(kernel.temporaries(logical, level.name)) * level.unit
        if (level.is_register and needed > level.capacity) or (level == fast and 2 * _CALLS * needed > level.capacity):
            return False
    return True


def _chain(logical: LogicalSpec) -> bool:
    """Return True if an operand is both read and written."""
    return any(map(_updated, logical.declared))


def _updated(operand: Operand) -> bool:
    return operand.reads and operand.writes


def _program(target: Target, kernel: Microkernel, spec: Spec, chained: bool, name: str) -> Program:
    """Return a function that calls a kernel `_CALLS` times in each of `morello_rounds` rounds."""

    def emit(site: KernelSite) -> None:
        _repeat(kernel, site, chained)

    timed = attrs.evolve(kernel, template=None, jam=None, emit=emit)
    only = attrs.evolve(target, kernels=(timed,), unavailable=(), whole=None)
    return only.emitter.emit(rewrite_leaf(spec, Select(kernel.name), only), only, name)


def _repeat(kernel: Microkernel, site: KernelSite, chained: bool) -> None:
    """Print rounds of calls. Compilers neither drop nor merge them: all that a call reads or writes is opaque."""
    pairs = list(zip(site.spec.declared, site.operands.values(), strict=True))
    memory = [(operand, one) for operand, one in pairs if not one.in_registers]
    copied = [(one, site.fresh("first")) for operand, one in memory if _updated(operand) and not chained]
    for _, one in memory:
        site.line(f'__asm__ volatile("" : "+r"({one.name}) : : "memory");')
    for one, first in copied:
        site.line(f"{one.tensor.state.dtype.c_name} *const {first} = {one.name};")
    counter = site.fresh("round")
    site.line(f"for (ptrdiff_t {counter} = 0; {counter} < morello_rounds; ++{counter}) {{")
    for call in range(_CALLS):
        site.line("{")
        for one, first in copied:
            site.line(f"{one.tensor.state.dtype.c_name} *const {one.name} = {first} + {call * _pitch(one.tensor)};")
        for operand, one in pairs:
            if one.in_registers and operand.reads:
                zero = operand.writes and not chained
                _opaque(site, one, f"({_type(site, one)}){{0}}" if zero else "")
        kernel.print(site)
        for operand, one in pairs:
            if one.in_registers and operand.writes:
                _opaque(site, one)
        site.line('__asm__ volatile("" : : : "memory");')
        site.line("}")
    site.line("}")


def _opaque(site: KernelSite, operand: OperandSite, value: str = "") -> None:
    """Print statements after which compilers do not know the values of an operand's registers, set to `value` first."""
    state = operand.tensor.state
    scalar = "MORELLO_FLOAT" if state.dtype.is_float and "int" not in state.dtype.c_name else '"r"'
    for register in operand.vectors():
        if value:
            site.line(f"{register} = {value};")
        site.line(f'__asm__ volatile("" : "+" {"MORELLO_VECTOR" if state.vector else scalar}({register}));')


def _type(site: KernelSite, operand: OperandSite) -> str:
    state = operand.tensor.state
    return site.vector_type(state.dtype, state.vector) if state.vector else state.dtype.c_name


def _pitch(tensor: TensorSpec) -> int:
    """Return the number of values from one copy of a tensor to the next: an odd number of lines of 64 bytes."""
    return (-(-int(tensor.bytes) // 64) | 1) * 64 // tensor.state.dtype.bytes


def _times(meter: UnitMeter, programs: Sequence[Program]) -> Mapping[str, float]:
    """Return the cost of a call in each program, by the program's name."""
    names = [(f"{one.name}_{rounds}", one, rounds) for one in programs for rounds in _ROUNDS]
    text = "\n".join([_HEAD, translation_unit(programs), *(_probe(*one) for one in names)])
    own = tuple(flag for flag in programs[0].flags if flag not in meter.timer.flags)
    found = meter.units(text, [name for name, _, _ in names], own)
    calls = _CALLS * (_ROUNDS[1] - _ROUNDS[0])
    pairs = zip(programs, found[::2], found[1::2], strict=True)
    return {one.name: max(_LEAST, (many - few) / calls) for one, few, many in pairs}


def _probe(name: str, program: Program, rounds: int) -> str:
    """Return the C of a function that calls a program on operands in the memory that it is given."""
    places: list[str] = []
    start = 0
    for one in program.parameters:
        places.append(f"(void *)((char *)memory + {start})")
        start += _CALLS * _pitch(one.tensor) * one.tensor.state.dtype.bytes
    return f"""\
static void {name}(void *memory) {{
    memset(memory, {_FILLED}, {start});
    morello_rounds = {rounds};
    {program.name}({", ".join(places)});
}}"""
