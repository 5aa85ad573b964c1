"""The kernel of a goal: a function on arrays that verifies, times and explains itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import takewhile
from operator import is_
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import attrs
import numpy as np

from morello.api.goals import Goal
from morello.api.packing import Packed, PackedConstants
from morello.build.toolchain import Compiler, is_auto
from morello.codegen.interface import unfinished
from morello.db.default import DatabaseLike, database
from morello.errors import ArgumentError
from morello.ir.impl import AllowedSteps, CostAndPeak, Impl, Leaf, cost_and_peak
from morello.ir.limits import Limits
from morello.ir.program import Program, of_operands
from morello.ir.spec import Spec
from morello.kernels.target import Metric, Target
from morello.progress import Listener, subscribe
from morello.rewrites.pack import packed
from morello.run.arguments import Argument, CallOrder, check_apart, check_parameters
from morello.run.arrays import ALIGNMENT, Blank
from morello.run.dlpack import library_of, to_library_of
from morello.run.elsewhere import RunnerFunction, function_of
from morello.run.fastcall import FastCall
from morello.run.function import NativeFunction
from morello.run.runner import Runner

if TYPE_CHECKING:
    from morello.report.explanation import Explanation
    from morello.report.tree import RunnerUp, RunnerUps
    from morello.run.compiler_choice import CompilerChoice
    from morello.run.metrics import Reading
    from morello.run.timing import BenchReport
    from morello.verify.check import CheckReport

# Verification, timing and reports are slow to import, so methods import them.

#: Fast calls that a thread holds, for arrays of different types, shapes or strides.
_MOST_FAST_CALLS = 8
#: Larger outputs, in bytes, are aligned to cache lines, which takes longer than a small kernel.
_SMALL = 1024


@attrs.frozen
class CheckedCall:
    """A call whose arrays were checked, on `size` arrays and `threads` threads, for the thread that checked it.

    `forms` are the arrays' types, data types, shapes and strides. `fast` uses the `workspace`, and makes the omitted
    outputs, which `export` converts to the caller's library.
    """

    size: int
    threads: int
    forms: tuple[Any, ...]
    fast: FastCall
    export: Callable[[np.ndarray], Any] | None
    workspace: np.ndarray


class _ThreadCalls(threading.local):
    """The checked calls of a thread, the last one first, and the workspace that they use."""

    def __init__(self) -> None:
        self.checked: list[CheckedCall] = []
        self.workspace: np.ndarray | None = None


class Kernel:
    """A function on arrays in the CPU's memory, built from C when it is first called.

    `kernel(*arrays)` takes one array per operand, in the order of `program.signature`, writes the outputs in place and
    returns None. Operands may also be given by name, and outputs as `out`, one array or a tuple, which is then
    returned. If all outputs that are not read are omitted, they are allocated and returned: one as an array, several
    as a tuple, of the library of the first array. Arrays are never copied. Other threads run meanwhile, except in calls
    of a few microseconds, and may call the same kernel.

    With parallel loops, `kernel(*arrays, threads=N)` uses N threads, by default MORELLO_THREADS, or one for each CPU of
    this process. Results are the same bits for any N.

    Constants are packed at the first call with an array, whose later changes calls do not see: see `pack` and `forget`.

    Arrays must have the form of `morello.run.arrays`; leading dimensions of size 1 may be omitted, also from allocated
    outputs. Calls raise ArgumentError for arrays that do not fit or a CPU without the target's instructions, and
    ToolchainError if the C cannot be built.

    `compiler` may be a command, as for `find_compiler`; `auto` chooses the one whose code is fastest. `runner` is a
    command that runs the program elsewhere, as for `find_runner`: then calls copy arrays there and back. Pickles hold
    the goal and the C: another process builds it again, or takes it from the cache.
    """

    def __init__(
        self,
        goal: Goal,
        program: Program,
        compiler: Compiler | str | None = None,
        runner: Runner | str | None = None,
    ):
        self.goal = goal
        self.program = program
        self._compiler, self._runner = compiler, runner
        self._own = _ThreadCalls()
        if error := unfinished(program.name, self.impl):
            raise error
        check_parameters(program, self.spec, self.target)

    @classmethod
    def of(
        cls,
        impl: Impl,
        target: Target,
        program: Program | None = None,
        compiler: Compiler | str | None = None,
        runner: Runner | str | None = None,
    ) -> Self:
        """Return the kernel of an implementation, by default of the C that the target emits for it."""
        goal = Goal.of_impl(impl, target, program.name if program else "kernel")
        return cls(goal, program or goal.program, compiler, runner)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.goal, self.program, self._compiler, self._runner)

    def __repr__(self) -> str:
        return f"<Kernel {self.program.name}: {self.spec.op} for {self.target.full_name}>"

    def _repr_html_(self) -> str:
        from morello.report.html import facts_html, table_html
        from morello.report.tree import by_level, program_tree, tree_table
        from morello.report.words import memory

        tree = program_tree(self.impl, self.target)
        facts = {**self.goal.facts, "schedule": "", "memory": memory(by_level(self.peak, self.target))}
        return f"{facts_html(facts)}\n{table_html(*tree_table(tree, compact=True))}"

    @property
    def impl(self) -> Impl:
        return self.goal.impl

    @property
    def target(self) -> Target:
        return self.goal.target

    @property
    def spec(self) -> Spec:
        return packed(self.goal.impl).spec

    @property
    def source(self) -> str:
        """Return the C source."""
        return self.program.source

    @property
    def header(self) -> str:
        """Return the C header that declares the function."""
        return self.program.header

    @property
    def schedule(self) -> str:
        """Return the schedule of this implementation in the Spec language."""
        return self.goal.schedule

    @cached_property
    def _totals(self) -> CostAndPeak:
        return cost_and_peak(self.impl)

    @property
    def cost(self) -> int:
        """Return the cost under the target's model."""
        return self._totals.cost

    @property
    def peak(self) -> Limits:
        """Return the peak memory in bytes per level, fastest first."""
        return self._totals.peak

    @property
    def low(self) -> int:
        """Return the proven lower bound of the costs of all programs that have the steps taken by hand."""
        return self.goal.low

    @property
    def proof(self) -> str:
        """Return the gap to the optimum in words, among programs that have the steps taken by hand."""
        return self.goal.proof

    @cached_property
    def choice(self) -> CompilerChoice | None:
        """Return the compilers that `auto` chose from, with their times; None for another `compiler`."""
        if isinstance(self._compiler, Compiler) or not is_auto(self._compiler):
            return None
        function = function_of(self.impl, self.target, self.program, runner=self._runner)
        if isinstance(function, RunnerFunction):
            return None
        from morello.run.compiler_choice import choose_compiler

        return choose_compiler(function)

    @cached_property
    def function(self) -> NativeFunction:
        """Return the C function."""
        compiler = self._compiler if self.choice is None else self.choice.compiler
        return function_of(self.impl, self.target, self.program, compiler, self._runner)

    @property
    def runner(self) -> Runner | None:
        """Return the command that runs it elsewhere, None if calls run in this process. Raises ToolchainError."""
        return self.function.runner

    @property
    def compiler(self) -> Compiler:
        """Return the C compiler that builds it. Raises ToolchainError without one."""
        return self.function.compiler

    @property
    def library(self) -> Path:
        """Return the shared object. Raises ToolchainError."""
        return self.function.library

    @property
    def files(self) -> dict[str, str]:
        """Return source and header by file name."""
        return self.function.files

    @property
    def arguments(self) -> tuple[Argument, ...]:
        """Return the requirements on each operand's array, in the order of a call."""
        return self.function.arguments

    @cached_property
    def _order(self) -> CallOrder:
        return CallOrder.of(str(self.spec.op), self.arguments)

    def __call__(self, *arrays: Any, out: Any = None, threads: int | None = None, **named: Any) -> Any:
        count = 1 if threads is None and not self.program.parallel else self.function.threads(threads)
        given = arrays if out is None and not named else self._order.in_order(arrays, out, named)
        if self.program.packs:
            given = self._with_packed(given)
        size = len(given)
        for checked in self._own.checked:
            if checked.size == size and checked.threads == count and (made := checked.fast.call(*given)) is not False:
                return out if made is True else exported(made, checked.export)
        return self._checked(given, out, count)

    @cached_property
    def packing(self) -> Mapping[int, Kernel]:
        """Return the kernels that pack constants, by operand; none if the program has no functions for that."""
        packs = sorted(self.goal.packs.items()) if self.program.packs else ()
        return {
            operand: Kernel(Goal.of_impl(impl, self.target, program.name), program, self._compiler, self._runner)
            for (operand, impl), program in zip(packs, self.program.packs, strict=True)
        }

    @cached_property
    def _constants(self) -> dict[int, PackedConstants]:
        """Return the packed forms of the constants, by operand."""
        names = [one.name for one in of_operands(self.program.parameters)]
        operands = self.spec.operands
        return {one: PackedConstants(names[one], operands[one], kernel) for one, kernel in self.packing.items()}

    @cached_property
    def _constant_places(self) -> dict[int, list[tuple[int, PackedConstants]]]:
        """Return the places of constants in a call, by its number of arrays: with the outputs, and without them."""
        calls = [self.arguments, [one for one in self.arguments if one.reads]]
        return {
            len(taken): [
                (at, self._constants[one.operand]) for at, one in enumerate(taken) if one.operand in self._constants
            ]
            for taken in calls
        }

    def _with_packed(self, given: Sequence[Any]) -> Sequence[Any]:
        """Return the arrays of a call with those of constants packed."""
        arrays = [*given]
        for place, constant in self._constant_places.get(len(arrays), ()):
            arrays[place] = constant.of(arrays[place])
        return arrays

    def pack(self, array: Any, name: str | None = None) -> Packed:
        """Return a constant packed, for calls to take in place of the array; `name` is its operand's if there are more.

        Raises ArgumentError for an array that does not fit, and for a name of no constant.
        """
        found = {one.name: one for one in self._constants.values()}
        if (name is None and len(found) != 1) or (name is not None and name not in found):
            listed = f"its constants are {', '.join(found)}" if found else "write `constant` in an operand of its Spec"
            raise ArgumentError(f"{self.program.name}: no constant {name or 'is named'}", listed)
        return (found[name] if name else next(iter(found.values()))).pack(array)

    def forget(self, array: Any) -> None:
        """Release what calls have packed of an array, so that the next call packs it again."""
        for constant in self._constants.values():
            constant.forget(array)

    def _checked(self, given: Sequence[Any], out: Any, threads: int) -> Any:
        """Check arrays, call the function, and store the call as a fast one."""
        arguments, function = self.arguments, self.function
        given = self._order.in_order(given)
        taken = [one for one in arguments if one.reads or len(given) == len(arguments)]
        seen = [argument.in_numpy(array) for argument, array in zip(taken, given, strict=True)]
        blanks = self._blanks(taken, seen)
        made = [blank() for blank in blanks]
        arrays, views = self._with(made, given), self._with(made, seen)
        fitted = [
            argument.fitted(view, library_of(array))
            for argument, view, array in zip(arguments, views, arrays, strict=True)
        ]
        check_apart(arguments, fitted)
        function(fitted, threads)
        export = to_library_of(given[0]) if made and given else None
        fast = None
        # Fast calls take the allocated outputs last.
        if not isinstance(function, RunnerFunction) and all(map(is_, arrays, (*given, *made))):
            loaded, numbers = function.load(), function.numbers(fitted, threads)
            fast = function.caller.fast_call(loaded.address, arguments, arrays, views, numbers, blanks)
        if fast is not None:
            forms = tuple(
                (type(one), view.dtype, view.shape, view.strides) for one, view in zip(arrays, views, strict=True)
            )
            self._store(CheckedCall(len(given), threads, forms, fast, export, function.workspace(threads)))
        return exported(made[0] if len(made) == 1 else tuple(made), export) if made else out

    def _store(self, call: CheckedCall) -> None:
        """Store a call unless one like it is stored: C refuses interleaved operands each time, as they may overlap."""
        own = self._own
        if own.workspace is not call.workspace:
            own.checked.clear()  # they use the previous workspace
            own.workspace = call.workspace
        if all((one.size, one.threads, one.forms) != (call.size, call.threads, call.forms) for one in own.checked):
            own.checked.insert(0, call)
            del own.checked[_MOST_FAST_CALLS:]

    def call_on(self, arrays: Sequence[Any], operands: Sequence[Any], allocates: bool) -> CheckedCall | None:
        """Return a checked call on arrays whose views from the same addresses are these operands, already checked.

        If it `allocates`, the last array is an example of the results that calls allocate. Returns None without such a
        call: for parallel loops, results that are not row-major, arrays without a fast exchange, and programs that run
        elsewhere.
        """
        if self.program.parallel or isinstance(self.function, RunnerFunction):
            return None
        arguments, function = self.arguments, self.function
        seen = [one.in_numpy(array) for one, array in zip(arguments, arrays, strict=True)]
        fitted = [one.fitted(one.in_numpy(operand)) for one, operand in zip(arguments, operands, strict=True)]
        blanks, export = (), None
        if allocates:
            if not seen[-1].flags.c_contiguous:
                return None
            blanks = (Blank.like(seen[-1], _alignment(arguments[-1])),)
            export, seen[-1] = to_library_of(arrays[0]), blanks[0]()
            arrays = [*arrays[:-1], seen[-1]]
        numbers = function.numbers(fitted, 1)
        fast = function.caller.fast_call(function.load().address, arguments, arrays, seen, numbers, blanks)
        return fast and CheckedCall(len(arrays) - len(blanks), 1, (), fast, export, function.workspace())

    def _blanks(self, taken: Sequence[Argument], seen: Sequence[np.ndarray]) -> tuple[Blank, ...]:
        """Return allocators of the omitted outputs, without the leading dimensions that all given arrays omit."""
        implicit_dims = min(
            (len(one.form.shape) - view.ndim for one, view in zip(taken, seen, strict=True) if one.form.plain),
            default=0,
        )
        blanks = []
        for argument in self.arguments:
            if argument not in taken:
                ones = len([*takewhile(lambda size: size == 1, argument.form.shape)])
                dropped = min(implicit_dims, ones) if argument.form.plain else 0
                blanks.append(Blank.of(argument.tensor, _alignment(argument), dropped))
        return tuple(blanks)

    def _with(self, made: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        """Return one array per operand, of those allocated and those given."""
        fresh, waiting = iter(made), iter(given)
        return [next(waiting) if one.reads or not made else next(fresh) for one in self.arguments]

    def threads(self, requested: int | None = None) -> int:
        """Return the threads that a call uses: 1 without parallel loops. Raises ArgumentError for a wrong number."""
        return self.function.threads(requested)

    def check(self, seed: int = 0, thorough: bool = False, reference: Target | None = None) -> CheckReport:
        """Verify it on random and adversarial data against reference semantics and the reference target.

        `reference` is by default the installed reference_c. Raises VerificationError for the first wrong value.
        """
        from morello.verify.check import verify

        for packing in self.packing.values():
            verify(packing.function, seed, thorough, reference)
        return verify(self.function, seed, thorough, reference)

    def bench(
        self,
        min_time: float = 0.3,
        repeats: int = 5,
        seed: int = 0,
        threads: int | None = None,
        *,
        cold: bool = False,
    ) -> BenchReport:
        """Time it on random data, for at least `min_time` seconds in at least `repeats` measurements.

        Operands are in caches, as far as they fit, or with `cold` in memory before each call.
        """
        from morello.run.timing import bench

        return bench(self.function, min_time, repeats, seed, threads, cold=cold)

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """Return what it is measured by in place of time: the target's metrics, or the instructions of an emulator."""
        from morello.run.metrics import metrics_of

        return metrics_of(self.target, self.runner)

    def readings(self, seed: int = 0) -> tuple[Reading, ...]:
        """Return the `metrics` of one call on random data."""
        from morello.run.metrics import readings

        return readings(self.function, self, seed)

    @property
    def tree(self) -> str:
        """Return the program as text, one node per line: cost of a run, runs, share of the total cost."""
        return self.goal.tree

    def explain(
        self, runner_ups: int = 0, noise: float = 1.0, db: DatabaseLike = None, progress: Listener = None
    ) -> Explanation:
        """Return the program's cost and memory by node and what bounds it, for terminals and notebooks.

        `runner_ups` is the number of alternatives for each searched node, if the program is proven optimal; they may
        take a search, with `db` and `progress` as for `Goal.synthesize`. Those that add less than `noise` percent to
        the program's cost are not shown.
        """
        from morello.report.balance import balance
        from morello.report.explanation import Explanation
        from morello.report.runner_ups import find_runner_ups, ranked
        from morello.report.tree import program_tree
        from morello.report.words import space_words

        goal, store = self.goal, database(db) if runner_ups else None
        found: RunnerUps | None = None
        if runner_ups and self.low >= self.cost:
            before, kept = goal.searches.solved(store), store.name if store else None
            with subscribe(progress, f"runner-ups of {goal.name}", before, kept) as listener:

                def best(spec: Spec, allowed: AllowedSteps) -> tuple[RunnerUp, ...]:
                    key = goal.name, goal.scheduled
                    with goal.searches.using(store, listener, Leaf(spec, allowed), key) as search:
                        return ranked(search.alternatives(spec, runner_ups))

                found = find_runner_ups(best, goal.scheduled, self.impl)
        tree, bounds = program_tree(self.impl, self.target, found), balance(self.impl, self.target)
        facts = goal.name, self.spec, self.target, tree, bounds, self.low, self.proof, goal.plain
        given = "" if isinstance(goal.scheduled, Leaf) else "the steps of the schedule; "
        space = "" if goal.is_scheduled else f"{given}{space_words(self.spec.logical, goal.allowed_target)}"
        return Explanation(*facts, noise, goal.among, space)


def _alignment(argument: Argument) -> int:
    """Return the alignment of allocated outputs."""
    small = argument.tensor.volume * argument.tensor.state.dtype.bytes <= _SMALL
    return argument.alignment if small else max(ALIGNMENT, argument.alignment)


def exported(made: Any, export: Callable[[np.ndarray], Any] | None) -> Any:
    """Return allocated outputs, an array or a tuple of several, in the caller's library."""
    if export is None:
        return made
    return tuple(map(export, made)) if isinstance(made, tuple) else export(made)
