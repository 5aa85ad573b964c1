"""Programs for a size that is known at run time: exact programs of a few sizes, and the cheapest covers by these.

The cost of a cover is the sum of those of its parts, so dynamic programming finds the cheapest one of each size.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TYPE_CHECKING, Any, NoReturn

import attrs
import numpy as np

from morello.api.goals import Goal
from morello.api.kernel import Kernel, exported
from morello.codegen.sizes import Parts, SizeRange, emit_parts
from morello.db.default import DatabaseLike
from morello.db.searches import Searches
from morello.db.store import SpecStore
from morello.errors import ArgumentError, Inapplicable, MorelloError
from morello.frontend.sizes import Sizes
from morello.frontend.specfile import Declaration, show_spec
from morello.ir.impl import Impl, Leaf, cost_and_peak, expand, leaves
from morello.ir.program import Program
from morello.ir.spec import LogicalSpec, Spec
from morello.progress import Listener
from morello.rewrites.base import Rewrite
from morello.rewrites.fit import ExactFit
from morello.rewrites.tile import Tile
from morello.run.arguments import Argument
from morello.run.dlpack import to_library_of
from morello.schedule import Position, Schedule, Synthesize, rewrite_leaf
from morello.search.budget import SearchBudget
from morello.search.progress import Progress

if TYPE_CHECKING:
    from morello.report.explanation import Explanation
    from morello.run.compiler_choice import CompilerChoice
    from morello.verify.check import CheckReport

#: A cover costs at most this multiple of an exact program, as far as costs between searched sizes are known.
RATIO = 1.1
#: The most parts of different sizes, which bound the code.
MOST_PARTS = 40
#: Parts grow by powers of two until twice the size costs nearly twice as much (`_LINEAR`), and calls are rare: from
#: this cost on, in tenths of a cycle.
_LINEAR, _LONG = 0.99, 200_000
#: The largest part, and the sizes among which parts are chosen.
_LARGEST = 1024
#: The sizes whose kernels are kept, those of the last calls.
_KERNELS = 256
_OFFERED = sorted({min(size << shift, _LARGEST) for size in range(1, 16) for shift in range(8)})


@attrs.frozen
class Covers:
    """The cheapest covers of sizes by parts: the least cost of each size from 0, and the largest part of such a cover.

    They end where the part is the same for as many sizes as the largest part has: the least costs of larger sizes are
    sums with these, so their part is that one, too.
    """

    costs: Mapping[int, int]
    least: list[int]
    parts: list[int]

    @classmethod
    def of(cls, costs: Mapping[int, int], high: int) -> Covers:
        """Return the covers of sizes up to `high` by parts of these sizes, 1 among them, and costs."""
        parts = sorted(costs, reverse=True)
        least, first, same = [0], [0], 0
        while len(least) <= high and same <= parts[0]:
            size = len(least)
            cost, part = min((costs[one] + least[size - one], -one) for one in parts if one <= size)
            same = same + 1 if first[-1] == -part else 1
            least.append(cost)
            first.append(-part)
        return cls(costs, least, first)

    def cost(self, size: int) -> int:
        """Return the least cost of a size."""
        last = self.parts[-1]
        more = max(0, -(-(size + 1 - len(self.least)) // last))
        return more * self.costs[last] + self.least[size - more * last]


@attrs.frozen
class SizePlan:
    """The parts that cover all sizes, and their programs."""

    parts: Parts
    costs: Mapping[int, int]
    #: The proven lower bound of the cost of the largest size, of all covers by programs of these parts.
    low: int

    @classmethod
    def of(cls, dim: int, programs: Mapping[int, Goal], high: int) -> SizePlan:
        """Return the plan with the cheapest covers of sizes up to `high`."""
        costs = {size: cost_and_peak(goal.impl).cost for size, goal in sorted(programs.items())}
        first = Covers.of(costs, high).parts
        low = Covers.of({size: goal.low for size, goal in programs.items()}, high).cost(high)
        long, count = first[-1], len(first) - 1
        while count > 1 and first[count] == long:
            count -= 1
        used = {*first[1:]}
        kept = {size: programs[size].impl for size in costs if size in used}
        return cls(Parts(dim, kept, tuple(first[1 : count + 1]), long), costs, low)

    def cover(self, size: int) -> Counter[int]:
        """Return the number of parts of each size that cover `size`, in the order in which they run."""
        found, table, long = Counter[int](), self.parts.table, self.parts.long
        if size > len(table):
            found[long] = -(-(size - len(table)) // long)
            size -= found[long] * long
        while size:
            part = table[size - 1]
            found[part] += 1
            size -= part
        return found

    def cost(self, size: int) -> int:
        """Return the cost of a size."""
        return sum(count * self.costs[part] for part, count in self.cover(size).items())


def choose_parts(cost: Callable[[int], int], high: int, few: bool = False) -> list[int]:
    """Return the sizes of parts for covers of sizes up to `high`, by the costs of their programs.

    They are powers of two, perhaps `high`, and then, again and again, the offered size whose cover costs the
    largest multiple of an exact program, until that is at most `RATIO`. Costs of sizes between those are interpolated.
    If they are to be few, they are powers of eight alone.
    """
    size, step, costs = 1, 8 if few else 2, {1: cost(1)}
    while step * size <= min(high, _LARGEST):
        size *= step
        costs[size] = cost(size)
        if costs[size] >= max(_LONG, _LINEAR * step * costs[size // step]):
            break
    else:
        if size < high <= _LARGEST and not few:
            size, costs[high] = high, cost(high)
    while len(costs) < MOST_PARTS and not few:
        known = sorted(costs)
        covers, offered = Covers.of(costs, size), [one for one in _OFFERED if one <= size]
        exact = np.interp(offered, known, [costs[one] for one in known])
        ratio, worst = max((covers.cost(one) / cost, one) for one, cost in zip(offered, exact.tolist(), strict=True))
        if ratio <= RATIO:
            break
        costs[worst] = cost(worst)
    return sorted(costs)


@attrs.frozen(repr=False)
class SizedGoal(Goal):
    """A goal for all sizes of one dimension; its Spec and its program are those of the largest one."""

    sizes: Sizes = attrs.field(kw_only=True)
    #: Whether parts are to be few, where each takes a long search.
    few: bool = False
    plan: SizePlan | None = None

    @classmethod
    def of_sizes(cls, goal: Goal, sizes: Sizes, few: bool = False) -> SizedGoal:
        """Return the goal of all sizes, given that of the largest."""
        made = cls(**{field.name: getattr(goal, field.name) for field in attrs.fields(Goal)}, sizes=sizes, few=few)
        # One search, with tables for all parts: those of one size serve most others.
        offered = [Leaf(made._part(size)) for size in {*_OFFERED, sizes.high} if size <= min(sizes.high, _LARGEST)]
        return attrs.evolve(made, searches=Searches(goal.target, shared=True, expected=() if few else offered))

    def __repr__(self) -> str:
        state = "not scheduled" if self.plan is None else f"{len(self.plan.parts.programs)} programs"
        return f"<SizedGoal {self.name}: {self._text} for {self.target.full_name}, {state}>"

    @property
    def _named(self) -> LogicalSpec:
        return self.sizes.named(self.spec.logical)

    @property
    def _text(self) -> str:
        return f"{self.plain.text(self._named)} {self.sizes}"

    @property
    def spec_lines(self) -> str:
        return show_spec(self.spec, self.target, self.plain, self.sizes)

    @property
    def facts(self) -> dict[str, str]:
        return {**super().facts, "Spec": self.spec_lines, **({"schedule": ""} if self.plan else {})}

    @property
    def declaration(self) -> Declaration:
        return Declaration(self.name, self.spec, (), self.signature, sizes=self.sizes)

    @property
    def schedule(self) -> str:
        """Return an empty text: the programs of parts have no common schedule."""
        return ""

    @property
    def low(self) -> int:
        return self.plan.low if self.plan else super().low

    @property
    def among(self) -> str:
        return f"covers by programs of these sizes{super().among and f', {super().among}'}"

    @cached_property
    def program(self) -> Program:
        """Return the C of all sizes; its `size` is the largest. Raises EmitError."""
        if self.plan is None:
            hint = "search for them: `synthesize`, or compile without --no-search"
            raise MorelloError(f"{self.name} has no programs yet", hint)
        costs = [f"    {size:>5}  {self.plan.costs[size]:,}" for size in sorted(self.plan.parts.programs)]
        about = ("Parts, with the cost of each; calls run the cheapest cover by them:", *costs)
        one = self.sizes
        shown = SizeRange(one.name, one.low, one.high, self._named, about)
        return emit_parts(self.plan.parts, self.spec, shown, self.target, self.name, self.signature)

    def at(self, size: int) -> Goal:
        """Return the goal of one size, with the program that a call runs. Raises MorelloError without programs."""
        if self.plan is None:
            raise MorelloError(f"{self.name} has no programs yet", "search for them: `synthesize`")
        return attrs.evolve(self._start(self.spec_at(size)), position=Position(self._impl(size)))

    def spec_at(self, size: int) -> Spec:
        """Return the Spec of one size."""
        shape = [*self.spec.shape]
        shape[self.sizes.dim] = size
        return self.target.spec(attrs.evolve(self.spec.logical, shape=tuple(shape)), tuple(map(int, self.spec.limits)))

    def _start(self, spec: Spec) -> Goal:
        return Goal.of(spec, self.target, self.name, self.searches, self.signature)

    def _part(self, size: int) -> Spec:
        """Return the Spec of a part."""
        if size == self.spec.shape[self.sizes.dim]:
            return self.spec
        tile = Tile(tuple(size if dim == self.sizes.dim else 0 for dim in range(len(self.spec.shape))))
        (part, *_) = rewrite_leaf(self.spec, tile, self.target).children
        assert isinstance(part, Leaf)
        return part.spec

    def _impl(self, size: int) -> Impl:
        """Return the program that a call runs for a size."""
        assert self.plan
        programs, cover, spec = self.plan.parts.programs, self.plan.cover(size), self.spec_at(size)
        if cover == {size: 1}:
            return programs[size]
        step = ExactFit(self.sizes.dim, tuple(cover), tuple(cover.values()))
        node = expand(spec, step.expansion(spec.logical, self.target), self.target.grids)
        assert node, "a loop takes no memory"
        return attrs.evolve(node, children=tuple(programs[part] for part in cover))

    def _applied(
        self,
        steps: Schedule,
        db: Callable[[], SpecStore | None],
        progress: Callable[[Progress], None] | None,
        budget: SearchBudget | None,
    ) -> SizedGoal:
        if len(steps) != 1 or not isinstance(steps[0], Synthesize):
            raise self._unsupported("schedule")
        if self.plan:
            return self
        (whole,) = leaves(self.impl)
        found = dict[int, Goal]()

        def cost(size: int) -> int:
            part = self._part(size)
            start = attrs.evolve(self._start(part), position=Position(Leaf(part, whole.allowed)))
            found[size] = start._applied(steps, db, progress, budget)
            return cost_and_peak(found[size].impl).cost

        choose_parts(cost, self.sizes.high, self.few)
        planned = attrs.evolve(self, plan=SizePlan.of(self.sizes.dim, found, self.sizes.high))
        return attrs.evolve(
            planned,
            position=Position(planned._impl(self.sizes.high)),
            before_search=whole,
            memory_reached=any(one.memory_reached for one in found.values()),
        )

    def subschedule(self, path: int | Sequence[int], body: Callable[[Goal], Goal]) -> NoReturn:
        raise self._unsupported("schedule")

    def _step(self, step: Rewrite) -> NoReturn:
        raise self._unsupported("schedule")

    def _unsupported(self, what: str) -> Inapplicable:
        return Inapplicable(f"{self.name} {self.sizes} has no {what}", "give one size, or leave all steps to search")


class SizedKernel(Kernel):
    """A kernel for all sizes of a dimension. The size of a call is that of its first array that has the dimension.

    Everything else that a kernel has is that of the largest size: `at` returns the kernel of another one. For size 0,
    calls check the arrays, and return empty outputs if they allocate them.
    """

    goal: SizedGoal

    @cached_property
    def choice(self) -> CompilerChoice | None:
        """Return the compilers that `auto` chose from, with their times for the largest part."""
        parts = self.goal.plan.parts.programs if self.goal.plan else ()
        return self._made(max(self.goal.sizes.low, *parts)).choice

    @cached_property
    def _kernels(self) -> Callable[[int], Kernel]:
        return lru_cache(_KERNELS)(self._shared)

    def at(self, size: int) -> Kernel:
        """Return the kernel of one size, which calls the same C. Raises ArgumentError if the size is out of range."""
        sizes = self.goal.sizes
        if not sizes.low <= size <= sizes.high:
            words = f"{self.program.name}: {sizes.name} is {size}, not in {sizes.low}..{sizes.high}"
            raise ArgumentError(words, "compile it for a larger range")
        return self._kernels(size)

    def _made(self, size: int) -> Kernel:
        """Return the kernel of one size."""
        goal = self.goal.at(size)
        parameters = tuple(attrs.evolve(one, tensor=goal.spec.operands[one.operand]) for one in self.program.parameters)
        program = attrs.evolve(self.program, parameters=parameters, size=size)
        return Kernel(goal, program, self._compiler, self._runner)

    def _shared(self, size: int) -> Kernel:
        """Return the kernel of one size, which uses the function of all."""
        made = self._made(size)
        made.choice = self.choice
        made.function.share(self.function)
        return made

    def __call__(self, *arrays: Any, out: Any = None, threads: int | None = None, **named: Any) -> Any:
        given = self._order.in_order(arrays, out, named)
        size = self._size(given)
        return self.at(size)(*arrays, out=out, threads=threads, **named) if size else self._empty(given, out)

    def _size(self, given: Sequence[Any]) -> int:
        """Return the size of a call on arrays, one for each operand or each that is read."""
        for argument, array in zip(self._taken(given), given, strict=True):
            axis = self._axis(argument)
            if axis:
                shape = argument.in_numpy(array).shape
                if len(shape) < -axis:
                    words = f"operand {argument.index} ({argument.name}): expected {-axis} axes, got shape {shape}"
                    raise ArgumentError(words, f"axis {axis} has size {self.goal.sizes.name}")
                return shape[axis]
        raise ArgumentError(f"no array has the size {self.goal.sizes.name}", "pass the output, too")

    def _taken(self, given: Sequence[Any]) -> list[Argument]:
        """Return the arguments of a call on these arrays, one for each operand or each that is read."""
        return [one for one in self.arguments if one.reads or len(given) == len(self.arguments)]

    def _axis(self, argument: Argument) -> int:
        """Return the axis of an array that has the size, from the end: a negative number, or 0 without one."""
        declared = self.spec.logical.declared[argument.operand]
        along = ((self.goal.sizes.dim, 1),)
        return declared.dims.index(along) - len(declared.dims) if along in declared.dims else 0

    def _empty(self, given: Sequence[Any], out: Any) -> Any:
        """Return the outputs of a call without values: those of the least size, without what this writes.

        Raises ArgumentError for arrays that do not fit.
        """
        arrays, least = list[np.ndarray](), self.goal.sizes.low
        for argument, one in zip(self._taken(given), given, strict=True):
            array, axis = argument.in_numpy(one), self._axis(argument)
            if axis and array.ndim >= -axis:
                shape = [*array.shape]
                shape[axis] += least
                array = np.zeros(shape, array.dtype)
            arrays.append(array)
        found = self.at(least)(*arrays)
        if found is None:
            return out
        outputs = [one for one in self.arguments if one.writes]
        made = zip(outputs, found if isinstance(found, tuple) else (found,), strict=True)
        empty = tuple(array.compress([], self._axis(one)) for one, array in made)
        return exported(empty if isinstance(found, tuple) else empty[0], to_library_of(given[0]))

    def explain(
        self, runner_ups: int = 0, noise: float = 1.0, db: DatabaseLike = None, progress: Listener = None
    ) -> Explanation:
        """Explain the program of the largest size, without runner-ups."""
        return super().explain(0, noise, db, progress)

    def check(self, seed: int = 0, thorough: bool = False, reference: Any = None) -> CheckReport:
        """Verify it in several sizes, as `Kernel.check` does: the smallest, those of parts, and sums of parts."""
        sizes = self.goal.sizes
        parts = sorted(self.goal.plan.parts.programs) if self.goal.plan else []
        tried = {sizes.low, min(sizes.high, 2 * parts[-1] + 1), *parts, sum(parts), parts[-1] - 1}
        tried = sorted(one for one in tried if sizes.low <= one <= sizes.high)
        reports = [self.at(size).check(seed, thorough, reference) for size in tried]
        results = tuple(
            attrs.evolve(one, name=f"{one.name}, {sizes.name} = {size}")
            for size, report in zip(tried, reports, strict=True)
            for one in report.results
        )
        return attrs.evolve(reports[-1], results=results)
