"""A compiled implementation as a Python callable."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import islice, takewhile
from operator import is_
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from morello import schedule
from morello.codegen.threads import MAX_THREADS
from morello.errors import ArgumentError, EmitError, ToolchainError, remedy
from morello.host import missing_features
from morello.ir.impl import CostAndPeak, Impl, cost_and_peak
from morello.ir.limits import Limits
from morello.ir.program import Program
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.runtime.arguments import Argument, CallOrder, arguments_of, check_apart
from morello.runtime.arrays import ALIGNMENT, Blank, workspace_bytes
from morello.runtime.build import build
from morello.runtime.cache import is_whole
from morello.runtime.dlpack import library_of, to_library_of
from morello.runtime.machine import default_threads
from morello.runtime.quick import Caller, Quick, caller_of
from morello.runtime.toolchain import Compiler, find_compiler, thread_flags

if TYPE_CHECKING:
    import cffi

#: Calls that a thread remembers, of arrays that differ in types, shapes or strides.
_MOST_KNOWN = 8


@attrs.frozen
class Loaded:
    """The emitted function in this process, the C types of its parameters, and what makes quick calls of it."""

    ffi: cffi.FFI
    function: Any
    types: tuple[Any, ...]
    caller: Caller

    @property
    def address(self) -> int:
        return int(self.ffi.cast("uintptr_t", self.function))

    def __call__(self, arguments: Sequence[Argument], arrays: Sequence[np.ndarray], numbers: Sequence[int]) -> None:
        """Call it on arrays for the operands, and other numbers in its order."""
        values, waiting = list[int](), iter(numbers)
        for argument, array in zip(arguments, arrays, strict=True):
            values += [array.ctypes.data, *islice(waiting, argument.form.free)]
        values += waiting
        self.function(*map(self.ffi.cast, self.types, values))


@attrs.frozen
class _Known:
    """A call on `size` arrays and so many threads, whose arrays were checked: how it is done again.

    `forms` are the arrays' types, data types, shapes and strides. `blanks` make the outputs that are left out, and
    `give` turns them into arrays of the caller's library.
    """

    size: int
    threads: int
    forms: tuple[Any, ...]
    quick: Quick
    blanks: tuple[Blank, ...]
    give: Callable[[np.ndarray], Any] | None


class _Own(threading.local):
    """Keeps what is a thread's own: scratch memory, and calls that are known, the last one first."""

    def __init__(self) -> None:
        self.workspace = np.empty(0, np.uint8)
        self.known: list[_Known] = []


class Kernel:
    """A function on arrays of the CPU, built from C when it is first called.

    `kernel(*arrays)` takes one array per operand, in the order of `program.signature`, writes the outputs in place and
    returns None. Operands may also be given by their names, and outputs as `out`, one array or a tuple of them, which
    is then returned. Outputs that are not read may be left out, all of them: they are then allocated and returned, a
    single one as an array, several as a tuple, of the library that the first array is of. No array is copied, and other
    threads run meanwhile, unless a call takes a few microseconds; a kernel may be called from several threads at once.
    `compiler` may be a command, as for `find_compiler`.

    Where the program has parallel loops, `kernel(*arrays, threads=N)` shares them among N threads: by default
    MORELLO_THREADS, or as many as there are CPUs for this process. Results are the same bits for any number.

    Arrays are checked first: see `morello.runtime.arrays` for what they look like. First dimensions of size 1 may lack,
    and those left out then lack them too. Calls raise ArgumentError for arrays that do not fit or a CPU that lacks
    features, and ToolchainError where the C cannot be built.
    """

    def __init__(self, impl: Impl, target: Target, program: Program, compiler: Compiler | str | None = None):
        self.impl = impl
        self.target = target
        self.program = program
        self._compiler = compiler
        self._lock = threading.Lock()
        self._own = _Own()
        _check_parameters(program, impl.spec, target)

    def __reduce__(self) -> tuple[Any, ...]:
        # The target comes first: it tells of plugins that are missing, before anything else of theirs is looked for.
        return _unpickled, (type(self), self.target, self.impl, self.program, self._compiler)

    def __repr__(self) -> str:
        return f"<Kernel {self.program.name}: {self.spec.op} for {self.target.name}>"

    @property
    def spec(self) -> Spec:
        return self.impl.spec

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
        """Return the schedule that makes this implementation of its Spec, as it is written in a Spec file."""
        return schedule.schedule_text(schedule.schedule_of(self.impl))

    @cached_property
    def _figures(self) -> CostAndPeak:
        return cost_and_peak(self.impl)

    @property
    def cost(self) -> int:
        """Return cost under the target's model. Raises SpecError for an unfinished implementation."""
        return self._figures.cost

    @property
    def peak(self) -> Limits:
        """Peak memory in bytes per level, fastest first. Raises SpecError for an unfinished implementation."""
        return self._figures.peak

    @cached_property
    def compiler(self) -> Compiler:
        """Return the C compiler that builds it. Raises ToolchainError if there is none."""
        return self._compiler if isinstance(self._compiler, Compiler) else find_compiler(self._compiler)

    @property
    def files(self) -> dict[str, str]:
        """Source and header by file name."""
        header = f"{self.program.name}.h"
        return {f"{self.program.name}.c": self.program.including(header), header: self.header}

    @cached_property
    def library(self) -> Path:
        """Return the shared object, built if need be. Raises ToolchainError."""
        return build(self.files, self.flags, self.compiler)

    @cached_property
    def flags(self) -> tuple[str, ...]:
        """Return the compiler's flags: the target's, and those for threads if there are parallel loops."""
        return (*self.program.flags, *(thread_flags(self.compiler) if self.program.parallel else ()))

    @cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """Return what each operand asks of its array, in the order of a call."""
        return arguments_of(self.spec, self.program.signature, self.target)

    @cached_property
    def _order(self) -> CallOrder:
        return CallOrder.of(str(self.spec.op), self.arguments)

    def __call__(self, *arrays: Any, out: Any = None, threads: int | None = None, **named: Any) -> Any:
        count = 1 if threads is None and not self.program.parallel else self.threads(threads)
        given = arrays if out is None and not named else self._order.in_order(arrays, out, named)
        size = len(given)
        for known in self._own.known:
            if known.size == size and known.threads == count:
                made = [blank(known.quick.address) for blank in known.blanks] if known.blanks else ()
                if known.quick.call(*given, *made):
                    return _handed(made, known.give) if made else out
        return self._checked(given, out, count)

    def threads(self, asked: int | None = None) -> int:
        """Return how many threads a call uses that asks for so many: 1 without parallel loops. Raises ArgumentError."""
        if asked is not None and (isinstance(asked, bool) or not isinstance(asked, int | np.integer)):
            raise ArgumentError(f"threads is {asked!r}", "it is a number")
        if asked is not None and not 1 <= asked <= MAX_THREADS:
            raise ArgumentError(f"{asked} threads", f"there are 1 to {MAX_THREADS}")
        if not self.program.parallel:
            return 1
        return default_threads() if asked is None else int(asked)

    def _checked(self, given: Sequence[Any], out: Any, threads: int) -> Any:
        """Call it on arrays that are not known yet, and know them from then on."""
        given = self._order.in_order(given)
        taken = [one for one in self.arguments if one.reads or len(given) == len(self.arguments)]
        seen = [argument.seen(array) for argument, array in zip(taken, given, strict=True)]
        blanks = self._blanks(taken, seen)
        made = [blank() for blank in blanks]
        arrays, views = self._with(made, given), self._with(made, seen)
        fitted = [
            argument.fitted(view, library_of(array))
            for argument, view, array in zip(self.arguments, views, arrays, strict=True)
        ]
        check_apart(self.arguments, fitted)
        loaded, numbers = self.load(), self.numbers(fitted, threads)
        loaded(self.arguments, fitted, numbers)
        give = to_library_of(given[0]) if made and given else None
        quick = loaded.caller.learn(loaded.address, self.arguments, arrays, views, numbers)
        # Quick calls take the outputs that are made last.
        if quick is not None and all(map(is_, arrays, (*given, *made))):
            forms = tuple(
                (type(one), view.dtype, view.shape, view.strides) for one, view in zip(arrays, views, strict=True)
            )
            self._remember(_Known(len(given), threads, forms, quick, blanks, give))
        return _handed(made, give) if made else out

    def _remember(self, call: _Known) -> None:
        """Know a call from now on, unless it is known: C cannot tell operands that mesh from such that overlap."""
        known = self._own.known
        if all((one.size, one.threads, one.forms) != (call.size, call.threads, call.forms) for one in known):
            known.insert(0, call)
            del known[_MOST_KNOWN:]

    def _blanks(self, taken: Sequence[Argument], seen: Sequence[np.ndarray]) -> tuple[Blank, ...]:
        """Return what makes the outputs beside the operands taken: without first dimensions that all of these lack."""
        implicit_dims = min(
            (len(one.form.shape) - view.ndim for one, view in zip(taken, seen, strict=True) if one.form.plain),
            default=0,
        )
        blanks = []
        for argument in self.arguments:
            if argument not in taken:
                ones = len([*takewhile(lambda size: size == 1, argument.form.shape)])
                dropped = min(implicit_dims, ones) if argument.form.plain else 0
                blanks.append(Blank.of(argument.tensor, max(ALIGNMENT, argument.alignment), dropped))
        return tuple(blanks)

    def _with(self, made: Sequence[Any], given: Sequence[Any]) -> list[Any]:
        """Return an array per operand, of those made and those given."""
        fresh, waiting = iter(made), iter(given)
        return [next(waiting) if one.reads or not made else next(fresh) for one in self.arguments]

    def numbers(self, arrays: Sequence[np.ndarray], threads: int) -> list[int]:
        """Return what the function takes besides pointers to operands, in its order: strides, workspace, threads."""
        pairs = zip(self.arguments, arrays, strict=True)
        numbers = [stride for argument, array in pairs for stride in argument.form.outer_strides(array)]
        if self.program.workspace_for(threads):
            numbers.append(self.workspace(threads).ctypes.data)
        return [*numbers, threads] if self.program.parallel else numbers

    def load(self) -> Loaded:
        """Return the function, built and loaded once. Raises ToolchainError, and ArgumentError for a lesser CPU."""
        with self._lock:
            return self._loaded

    @cached_property
    def _loaded(self) -> Loaded:
        missing = missing_features((*self.target.info.cpu_features, *self.program.cpu_features))
        if missing:
            raise ArgumentError(
                f"this machine's CPU lacks {', '.join(missing)}, which code for {self.target.name} needs",
                "run it on another machine, or compile for a target that this one supports",
            )
        import cffi  # only here: who only wants C need not wait for it

        ffi = cffi.FFI()
        ffi.cdef(f"{self.program.prototype};")
        try:
            if not is_whole(self.library):
                del self.library  # removed or damaged since it was built: it is built again
            function = getattr(ffi.dlopen(str(self.library)), self.program.name)
        except (OSError, AttributeError) as error:
            raise ToolchainError(
                f"{self.library} cannot be loaded: {error}", "delete the file; it is built again on the next call"
            ) from error
        return Loaded(ffi, function, tuple(ffi.typeof(function).args), caller_of(self.program, self.compiler))

    def workspace(self, threads: int = 1) -> np.ndarray:
        """Return the calling thread's scratch memory for the function, in bytes, where it runs on so many threads."""
        needed = self.program.workspace_for(threads)
        if self._own.workspace.size < needed:
            self._own.known.clear()  # these have the address of the one before
            self._own.workspace = workspace_bytes(needed)
        return self._own.workspace


def _unpickled(
    kind: type[Kernel], target: Target, impl: Impl, program: Program, compiler: Compiler | str | None
) -> Kernel:
    return kind(impl, target, program, compiler)


def _handed(made: Sequence[np.ndarray], give: Callable[[np.ndarray], Any] | None) -> Any:
    """Return outputs that were left out: a single one by itself, and in the caller's library."""
    handed = made if give is None else [give(array) for array in made]
    return handed[0] if len(handed) == 1 else tuple(handed)


def _check_parameters(program: Program, spec: Spec, target: Target) -> None:
    """Raise EmitError if the emitter's parameters are not the Spec's operands."""
    operands, hint = spec.operands, remedy(target.origins.get("emitter", target.name))
    if len(program.parameters) != len(operands):
        raise EmitError(f"{program.name} has {len(program.parameters)} parameters for {len(operands)} operands", hint)
    if sorted(program.signature.operands) != [*range(len(operands))]:
        raise EmitError(f"{program.name}: its parameters are not the operands of its Spec, one for each", hint)
    for parameter in program.parameters:
        tensor = operands[parameter.operand]
        layout = tensor.state.layout
        strides = 0 if layout is None else len(layout.dims) - tensor.state.contig
        if parameter.strides != strides:
            raise EmitError(
                f"{program.name}: {parameter.name} takes {parameter.strides} strides, its Spec has {strides}", hint
            )
