"""Check that microkernels compute their declared results, on Specs drawn from the declaration alone."""

from __future__ import annotations

import itertools
import random
import unittest
from collections.abc import Container, Iterable, Iterator, Sequence
from functools import cached_property

import attrs
import numpy as np

from morello.build.toolchain import Compiler
from morello.codegen.loops import jam_of
from morello.errors import Inapplicable, MorelloError, PluginError, SpecError, VerificationError
from morello.ir.dtypes import DType, by_name
from morello.ir.impl import Node
from morello.ir.in_place import output_over
from morello.ir.layout import Layout, canonical, col_major, row_major
from morello.ir.numbers import Num, product
from morello.ir.ops.base import Operand, Operation
from morello.ir.signature import Signature
from morello.ir.spec import LogicalSpec, Spec
from morello.ir.tensor import OperandState, TensorSpec
from morello.kernels.microkernel import Microkernel
from morello.kernels.pattern import Multiple, OperandPattern
from morello.kernels.target import Target
from morello.rewrites.select import Select, checked_cost
from morello.rewrites.tile import Tile
from morello.run.runner import missing_here
from morello.schedule import rewrite_leaf, with_child
from morello.testing.generate import layout_choices, random_parameters
from morello.testing.trials import FLAGS, Trials

#: Sizes of free dimensions of a kernel, besides those that fill vectors.
_SIZES = (1, 1, 2, 3, 4, 5, 7, 8, 9, 12, 16, 17, 24, 31, 32, 33, 48, 64)
#: How many values the free dimensions span together at most.
_VOLUME = 4096
#: Draws for one combination of data types before another one is tried: more in each round.
_ROUNDS = (10, 30, 100, 300, 1000, 3000, 10000)
#: Draws of the state of one operand, at most: one in the first round.
_TRIES = 10
#: Combinations of data types that are tried besides those that are all the same.
_KINDS = 200
#: Combinations of data types that are looked at: all those of few operands.
_TRIED = 20_000
#: Operands of other data types than the usual ones, at most, for operations that have such.
_NEAR = 2
#: Draws of a round; data types without a Spec in it are skipped if others have one.
_ENOUGH = 3_000
#: Specs around which a loop is put for kernels whose calls are printed together.
_JAMMED = 2
#: Calls of a kernel that store the output over an input.
_OVERWRITING = 2
#: Kernels whose Specs are built together.
_GROUP = 24


def accepted_specs(
    target: Target, kernel: Microkernel, count: int = 8, seed: int = 0, *, all_types: bool = True
) -> list[Spec]:
    """Return Specs that `kernel` accepts: `count` of them, or more until each data type of each operand has come up.

    They are drawn from the declaration: sizes by its rules, operands in every level, layout, vector size, contiguity
    and alignment that it takes. Operands and temporaries fit into the registers there are. Without `all_types`, data
    types may be missing. Raises PluginError, naming the kernel, if there are none, or none with a declared data type.
    """
    # Some draws have one normal form.
    return [*dict.fromkeys(target.spec(logical) for logical in _Drawing(target, kernel, seed).specs(count, all_types))]


@attrs.frozen
class KernelCheck:
    """The check of one microkernel; calling it runs it. `str(check)` names it, as for pytest's `ids`.

    Checks of one `group` share builds, so they should run in one process: it names an `xdist_group`.
    """

    kernel: Microkernel
    group: str
    _built: _Group

    def __str__(self) -> str:
        return f"{self._built.target.name}-{self.kernel.name}"

    def __call__(self) -> None:
        """Check the declaration, then run the kernel on its Specs and compare its results.

        Raises PluginError for a declaration that breaks a rule or accepts nothing, VerificationError for a wrong
        result or a target whose programs cannot run here, and unittest.SkipTest, which pytest knows too, where this
        machine's CPU lacks a feature that only some kernels need.
        """
        self._built.check(self.kernel)


def kernel_checks(
    target: Target,
    count: int = 4,
    seed: int = 0,
    *,
    compiler: Compiler | None = None,
    flags: Sequence[str] = FLAGS,
    sanitize: bool = False,
    reference: Target | None = None,
    runner: str | None = None,
) -> list[KernelCheck]:
    """Return a check of each microkernel of `target` on `count` Specs or more: see `accepted_specs` and `Trials`.

    `runner` is a command that runs the programs, by default that in MORELLO_RUNNER, or one of the target's. Nothing is
    generated or compiled before the first check runs; then, two dozen kernels at a time.
    """
    checks = []
    for start in range(0, len(target.kernels), _GROUP):
        kernels = target.kernels[start : start + _GROUP]
        options = {"compiler": compiler, "flags": flags, "sanitize": sanitize, "seed": seed}
        options |= {"reference": reference, "runner": runner}
        group = _Group(target, kernels, count, seed, options)
        checks += [KernelCheck(kernel, f"{target.name} {start // _GROUP}", group) for kernel in kernels]
    return checks


@attrs.define(eq=False)
class _Group:
    """Kernels that are built together; `options` are those of Trials."""

    target: Target
    kernels: Sequence[Microkernel]
    count: int
    seed: int
    options: dict

    def check(self, kernel: Microkernel) -> None:
        found = self._specs[kernel.name]
        if isinstance(found, MorelloError):
            raise found
        check_declaration(self.target, kernel, found, self.seed)
        info = self.target.info
        if missing := missing_here(info, (), self.options["runner"]):
            raise VerificationError(
                f"no kernel of {info.name} was executed: this CPU lacks {', '.join(missing)}",
                "use a machine that has them, by a runner (MORELLO_RUNNER) if need be, or skip these checks on others",
            )
        if missing := missing_here(info, kernel.cpu_features, self.options["runner"]):
            raise unittest.SkipTest(f"this CPU lacks {', '.join(missing)}, which {kernel.name} needs")
        trials, numbers = self._trials
        for number in numbers[kernel.name]:
            trials.check(number)

    @cached_property
    def _specs(self) -> dict[str, list[Spec] | PluginError]:
        specs: dict[str, list[Spec] | PluginError] = {}
        for kernel in self.kernels:
            try:
                specs[kernel.name] = accepted_specs(self.target, kernel, self.count, self.seed)
            except PluginError as error:
                specs[kernel.name] = error
        return specs

    @cached_property
    def _trials(self) -> tuple[Trials, dict[str, list[int]]]:
        """Return all programs, and the numbers of each kernel's."""
        impls: list[Node] = []
        signatures, numbers = dict[int, Signature](), {}
        for name, specs in self._specs.items():
            if not isinstance(specs, MorelloError):
                own = [rewrite_leaf(spec, Select(name), self.target) for spec in specs]
                own += _jammed(self.target, self.target.kernels_by_name[name], specs)
                over = _overwriting(self.target, self.target.kernels_by_name[name], specs)
                signatures |= {len(impls) + len(own) + at: signature for at, (_, signature) in enumerate(over)}
                own += [call for call, _ in over]
                numbers[name] = [*range(len(impls), len(impls) + len(own))]
                impls += own
        return Trials(impls, self.target, **self.options, signatures=signatures), numbers


def _overwriting(target: Target, kernel: Microkernel, specs: Sequence[Spec]) -> list[tuple[Node, Signature]]:
    """Return calls of a kernel `in_place`, on Specs like some of these, that store the output over an input."""
    found = list[tuple[Node, Signature]]()
    for spec in specs if kernel.in_place else ():
        logical = spec.logical
        *inputs, output = range(len(logical.states))
        for one, state in itertools.product(inputs, dict.fromkeys(logical.states)):
            if len(found) == _OVERWRITING or target.level(state.level).is_register:
                continue
            states = tuple(state if each in (one, output) else own for each, own in enumerate(logical.states))
            try:
                made = target.spec(attrs.evolve(logical, states=states))
                output_over(made.logical, one)
                call = rewrite_leaf(made, Select(kernel.name), target)
            except (Inapplicable, SpecError):
                continue
            found.append((call, attrs.evolve(Signature.of(made.logical), overwritten=one)))
    return found


def _jammed(target: Target, kernel: Microkernel, specs: Sequence[Spec]) -> list[Node]:
    """Yield loops of calls that are printed together, along each dimension that allows it, around some `specs`.

    Raises PluginError if there are none.
    """
    if kernel.jam is None:
        return []
    loops = []
    for spec in specs[:_JAMMED]:
        for dim, size in enumerate(spec.shape):
            sizes = tuple(int(size) if dim == other else 0 for other in range(len(spec.shape)))
            larger = tuple(n * kernel.jam.most if dim == other else n for other, n in enumerate(spec.shape))
            try:
                loop = rewrite_leaf(target.spec(_spread(target, kernel, spec.logical, larger)), Tile(sizes), target)
                call = rewrite_leaf(loop.children[0].spec, Select(kernel.name), target)
            except Inapplicable:
                continue
            if jam_of(call, target, kernel.jam.most):
                loops.append(with_child(loop, (0,), call))
    if not loops:
        raise target.fault(kernel, "its jam is of no use: no loop consists of calls that it accepts")
    return loops


def _spread(target: Target, kernel: Microkernel, logical: LogicalSpec, shape: tuple[Num, ...]) -> LogicalSpec:
    """Return a Spec of this shape with operands like those of `logical`: in memory where the kernel takes them, as
    loops over registers are unrolled, and larger ones in a layout by the pattern."""
    states = []
    for operand, pattern, state in zip(logical.op.operands(len(shape)), kernel.operands, logical.states, strict=True):
        levels = [level for level in target.operand_levels if not pattern.levels or level.name in pattern.levels]
        level = next((level.name for level in levels if not level.is_register), state.level)
        if operand.shape(shape) != operand.shape(logical.shape) or level != state.level:
            layout = (col_major if pattern.layout == "col_major" else row_major)(len(operand.dims))
            tensor = TensorSpec(operand.shape(shape), target.state(level, state.dtype, layout))
            state = tensor.canonical().state
        states.append(state)
    return attrs.evolve(logical, shape=shape, states=tuple(states))


def check_declaration(target: Target, kernel: Microkernel, specs: Sequence[Spec], seed: int = 0) -> None:
    """Check what can be checked without running anything. Raises PluginError for the first rule that is broken.

    `specs` are some that the kernel accepts. Its cost is an integer of at least 1, and for many Specs at once, as
    search asks for them, its condition and its cost equal those of each alone. Temporaries fit the registers.
    """
    for name, spec in ((level.name, spec) for level in target.levels for spec in specs):
        level, needed = target.level(name), int(kernel.temporaries(spec.logical, name))
        if needed * level.unit > level.capacity:
            raise target.fault(
                kernel, f"it needs {needed} registers in {name}, which has {level.capacity // level.unit}"
            )
    rng = random.Random(f"{seed} {kernel.name}")
    for spec in specs:
        cells = [spec.logical, *_alike(rng, spec.logical)]
        batch = attrs.evolve(spec.logical, shape=_columns([one.shape for one in cells]))
        expected = [bool(kernel.accepts(one)) for one in cells]
        given = np.broadcast_to(np.asarray(kernel.accepts(batch)), len(cells)).tolist()
        if given != expected:
            raise _disagrees(target, kernel, "accepts", cells, expected, given)
        cells = [one for one, fits in zip(cells, expected, strict=True) if fits]
        batch = attrs.evolve(batch, shape=_columns([one.shape for one in cells]))
        costs = [int(checked_cost(kernel, one, target)) for one in cells]
        given = np.broadcast_to(np.asarray(checked_cost(kernel, batch, target)), len(cells)).tolist()
        if given != costs:
            raise _disagrees(target, kernel, "costs", cells, costs, given)


def _columns(shapes: Sequence[Sequence[Num]]) -> tuple[np.ndarray, ...]:
    return tuple(np.array(sizes, np.int64) for sizes in zip(*shapes, strict=True))


def _disagrees(
    target: Target, kernel: Microkernel, what: str, cells: Sequence[LogicalSpec], alone: Sequence, together: Sequence
) -> PluginError:
    wrong = next(i for i in range(len(cells)) if alone[i] != together[i])
    return target.fault(
        kernel,
        f"the values that it {what} differ between a Spec alone ({alone[wrong]}) and among others ({together[wrong]}): "
        f"{cells[wrong]}",
    )


def _alike(rng: random.Random, logical: LogicalSpec, tries: int = 24) -> Iterator[LogicalSpec]:
    """Yield Specs that differ in sizes alone: their operands' states are those of `logical`."""
    kinds = [state.dtype for state in logical.states]
    for _ in range(tries):
        # A dimension of size 1 is not in layouts, so it keeps its size.
        choices = [[1] if size == 1 else [size, 2 * size, 5 * size, *_SIZES] for size in logical.shape]
        shape = tuple(map(rng.choice, choices))
        other = attrs.evolve(logical, shape=shape)
        if logical.op.refusal(shape, kinds) is None and all(map(_is_canonical, other.operands)):
            yield other


def _is_canonical(tensor: TensorSpec) -> bool:
    layout = tensor.state.layout
    if layout is not None and not layout.applies(tensor.shape):
        return False
    return tensor.canonical() == tensor and bool(tensor.has_whole_vectors())


def _distance(kinds: Sequence[DType], usual: Sequence[DType], named: Sequence[Sequence[DType]]) -> int:
    """Return the number of operands without their usual data type although the pattern allows it."""
    return sum(one != other and other in own for one, other, own in zip(kinds, usual, named, strict=False))


class _Drawing:
    """Draws Specs from a declaration."""

    def __init__(self, target: Target, kernel: Microkernel, seed: int):
        self._target, self._kernel = target, kernel
        self._operations = kernel.operations(target)
        self._rng = random.Random(f"{seed} {kernel.name}")
        counts = {size // width for level in target.levels for size in level.vectors for width in (1, 2, 4)}
        named = {size for pattern in kernel.operands for size in pattern.vectors}
        #: Sizes that fill vectors: all that there are, or those that the kernel names, and pairs.
        self._vectors = [n * size for size in sorted(named or counts) for n in (1, 1, 2, 3)]
        self._vectors += [2] * (len(self._vectors) // 4)

    def specs(self, count: int, all_types: bool) -> list[LogicalSpec]:
        """At least `count` of them, all different, with every data type; fewer only if there are no more."""
        kinds = self._kinds()
        missing = {(index, dtype) for one in kinds for index, dtype in enumerate(one) if all_types}
        drawn: dict[LogicalSpec, None] = {}
        for draws in _ROUNDS:
            for one in kinds:
                new = missing & set(enumerate(one))
                if new or len(drawn) < count:
                    spec = self._draw(one, draws, drawn) or (self._like(one, drawn) if new else None)
                    if spec:
                        drawn[spec] = None
                        missing -= new
            if len(drawn) >= count:
                # Only those with data types that have not come up are drawn again.
                kinds = [one for one in kinds if missing & set(enumerate(one))]
                if not kinds or draws * len(kinds) >= _ENOUGH:
                    break
        if not drawn:
            raise self._target.fault(
                self._kernel, f"it accepts none of many Specs drawn from its declaration, {self._kernel.describe()}"
            )
        for index, pattern in enumerate(self._kernel.operands if all_types else ()):
            if absent := {*pattern.dtypes} - {one.states[index].dtype.name for one in drawn}:
                raise self._target.fault(
                    self._kernel, f"operand {index} is {' or '.join(sorted(absent))} in none of many Specs it accepts"
                )
        return [*drawn]

    def _kinds(self) -> list[tuple[DType, ...]]:
        """Combinations of data types that the patterns allow, shuffled; some, if there are very many."""
        rng, known = self._rng, self._target.dtypes
        named = [[by_name(name, known) for name in one.dtypes] or [*known.values()] for one in self._kernel.operands]
        # All the same, but for operands that have a single one, such as masks.
        alike = [tuple(own[0] if len(own) == 1 else dtype for own in named) for dtype in (*named[0], *known.values())]
        alike = [one for one in dict.fromkeys(alike) if all(a in b for a, b in zip(one, named, strict=True))]
        others: list[tuple[DType, ...]] = []
        if "dtype" not in self._kernel.same:
            every, usual = itertools.product(*named), self._operations[0].only_types
            if usual:
                # Few are valid. Those near the usual ones have each type of each operand.
                others += (one for one in every if _distance(one, usual, named) <= _NEAR)
            elif product(map(len, named)) <= _TRIED:
                others += every
            else:
                others += (tuple(map(rng.choice, named)) for _ in range(_TRIED))
            rng.shuffle(others)
        found = (*filter(self._may_be, alike), *itertools.islice(filter(self._may_be, others), _KINDS))
        kinds = [*dict.fromkeys(found)]
        rng.shuffle(kinds)
        return kinds

    def _may_be(self, kinds: tuple[DType, ...]) -> bool:
        """Return True if the kernel takes these data types, and the operation for some shape."""
        if self._kernel.types and tuple(dtype.name for dtype in kinds) not in self._kernel.types:
            return False
        for _ in range(6):
            op = self._operation()
            if op.refusal(self._shape(op), kinds) is None:
                return True
        return False

    def _draw(self, kinds: tuple[DType, ...], draws: int, drawn: Container[LogicalSpec]) -> LogicalSpec | None:
        for _ in range(draws):
            logical = self._candidate(kinds, min(draws // _ROUNDS[0], _TRIES))
            if logical and logical not in drawn and self._fits(logical) and self._kernel.accepts(logical):
                return logical
        return None

    def _like(self, kinds: tuple[DType, ...], examples: Iterable[LogicalSpec]) -> LogicalSpec | None:
        """Return a Spec found for other types as wide as these, with these instead, if the kernel accepts that."""
        for example in examples:
            if any(state.dtype.bytes != dtype.bytes for state, dtype in zip(example.states, kinds, strict=True)):
                continue
            states = tuple(attrs.evolve(state, dtype=dtype) for state, dtype in zip(example.states, kinds, strict=True))
            logical = attrs.evolve(example, states=states)
            shape = tuple(map(int, example.shape))
            if logical.op.refusal(shape, kinds) is None and self._fits(logical) and self._kernel.accepts(logical):
                return logical
        return None

    def _candidate(self, kinds: tuple[DType, ...], tries: int) -> LogicalSpec | None:
        """Return a Spec in normal form that the kernel may accept; None for an invalid draw.

        The state of each operand is drawn until its pattern accepts it, `tries` times at most.
        """
        op = self._operation()
        shape = self._shape(op)
        declared = op.operands(len(shape))
        if len(declared) != len(kinds) or op.refusal(shape, kinds) is not None:
            return None
        states: list[OperandState] = []
        for one, pattern, dtype in zip(declared, self._kernel.operands, kinds, strict=True):
            found = (self._state(one, pattern, dtype, shape, states) for _ in range(tries))
            state = next((each for each in found if each and pattern.accepts(each, len(one.dims))), None)
            if state is None:
                return None
            states.append(state)
        return LogicalSpec(op, shape, tuple(states), serial=self._rng.random() < 0.8)

    def _operation(self) -> Operation:
        """Return the kernel's operation, or one of its class with any parameters."""
        if isinstance(self._kernel.op, Operation):
            return self._kernel.op
        return random_parameters(self._rng, self._rng.choice(self._operations))

    def _shape(self, op: Operation) -> tuple[int, ...]:
        rng, kernel = self._rng, self._kernel
        own = len(kernel.shape) if isinstance(kernel.shape, tuple) else 0
        rules = kernel.size_rules(own or op.rank or rng.randint(1, 4)) or ()
        free = [dim for dim, rule in enumerate(rules) if rule is None]
        sizes = [
            rule
            if isinstance(rule, int)
            else rule.of * rng.choice([1, 1, 2, 3, 5])
            if isinstance(rule, Multiple)
            else 1
            for rule in rules
        ]
        # Many kernels take a single value, row or pair of dimensions.
        rng.shuffle(free)
        for dim in free[: rng.choice([0, 1, 1, 2, 2, len(free)])]:
            left = _VOLUME // product(sizes[other] for other in free)
            # Squares are rare among sizes drawn one by one.
            squares = [size for size in sizes if size > 1] or self._vectors
            choices = rng.choice([(*_SIZES, *self._vectors), self._vectors, squares])
            choices = [size for size in choices if size <= left]
            sizes[dim] = rng.choice(choices or [1])
        return tuple(sizes)

    def _state(
        self,
        operand: Operand,
        pattern: OperandPattern,
        dtype: DType,
        shape: tuple[int, ...],
        before: list[OperandState],
    ) -> OperandState | None:
        """Return a state that the pattern allows; None for a draw that does not fit the operand's shape."""
        rng, target, kernel = self._rng, self._target, self._kernel
        extents = operand.shape(shape)
        level = target.level(rng.choice(pattern.levels or [each.name for each in target.operand_levels]))
        if level.kind == "scalar":
            return OperandState(dtype, level.name, None)
        # Kernels often want operands that are laid out alike.
        model = rng.choice(before) if before and (rng.random() < 0.35 or kernel.same) else None
        layout = model.layout if model and pattern.layout == "any" else None
        if layout is None or ("layout" not in kernel.same and rng.random() < 0.2):
            layout = self._layout(pattern, dtype, len(extents))
        vector = None
        if level.kind == "vector":
            sizes = [
                size for size in target.vector_sizes(level, dtype) if not pattern.vectors or size in pattern.vectors
            ]
            alike = model.vector if model else None
            vector = alike if alike in sizes else rng.choice(sizes) if sizes else None
        found = canonical(layout, extents)
        if found is None:
            return None
        layout, contig = found
        loose = not pattern.contiguous and rng.random() < 0.5
        aligned = pattern.aligned or rng.random() < 0.6
        run = rng.randrange(contig) if loose and contig else contig
        state = target.state(level.name, dtype, layout, contig=run, aligned=aligned, vector=vector)
        tensor = TensorSpec(extents, state)
        if run != contig:
            tensor = tensor.canonical()
        return tensor.state if tensor.has_whole_vectors() else None

    def _layout(self, pattern: OperandPattern, dtype: DType, rank: int) -> Layout:
        if pattern.layout != "any":
            return row_major(rank) if pattern.layout == "row_major" else col_major(rank)
        if pattern.layouts:
            # Those with fewer dimensions are for sizes of 1, and fuller ones become them in normal form.
            most = max(len(one.dims) for one in pattern.layouts)
            full = [one for one in pattern.layouts if len(one.dims) == most]
            return self._rng.choice(full if self._rng.random() < 0.5 else pattern.layouts)
        if self._rng.random() < 0.4:
            return self._rng.choice([row_major, col_major])(rank) if rank > 1 else row_major(rank)
        return self._rng.choice(layout_choices(self._target, dtype, rank))

    def _fits(self, logical: LogicalSpec) -> bool:
        """Return True if the registers hold the operands and the kernel's temporaries."""
        footprints = [self._target.footprint(tensor) for tensor in logical.operands]
        for level, *taken in zip(self._target.levels, *footprints, strict=True):
            needed = sum(map(int, taken)) + int(self._kernel.temporaries(logical, level.name)) * level.unit
            if level.is_register and needed > level.capacity:
                return False
        return True
