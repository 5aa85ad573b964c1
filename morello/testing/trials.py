"""Verifies many programs of one target, built together: against numpy, the reference, warnings and sanitizers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from types import MappingProxyType

import attrs
import numpy as np

from morello.build.toolchain import Compiler, find_compiler
from morello.errors import MorelloError, VerificationError
from morello.frontend.specfile import Declaration, SpecFile, show_file
from morello.ir.impl import Node
from morello.ir.signature import Signature
from morello.kernels.target import Target
from morello.run.arrays import pack, random_values, unpack
from morello.run.elsewhere import function_of
from morello.run.function import NativeFunction
from morello.run.runner import find_runner
from morello.schedule import schedule_of
from morello.testing.batch import build_together
from morello.testing.sanitize import Job, run_all_sanitized
from morello.verify.check import check_results, verify
from morello.verify.datasets import DataSet, DataSetting, data_sets
from morello.verify.reference import Reference, native_compiler

#: Warnings are errors. Optimising more takes longer, and the code is the same to a compiler's front end.
FLAGS = ("-O1", "-Wall", "-Wextra", "-Werror")


def spec_file(impl: Node, target: Target, name: str = "failing", signature: Signature | None = None) -> str:
    """Return the Spec file whose schedule makes this program."""
    return show_file(SpecFile(target, (Declaration(name, impl.spec, schedule_of(impl), signature),)))


@attrs.frozen
class _Trial:
    """One program: its fault so far, or its kernel and the reference to compare with."""

    impl: Node
    kernel: NativeFunction | None
    reference: Reference | None
    error: MorelloError | None = None


class Trials:
    """Complete programs of one target, to be verified one by one; all are built when the first is.

    `flags` come after the target's own. With `sanitize` each also runs once under the sanitizers, on one of the
    data sets in turn, and its results are checked, too. `reference` is the installed reference_c unless given.
    `runner` is a command that runs the programs, as for `find_runner`. `signatures` are those of some programs, by
    number.
    """

    def __init__(
        self,
        impls: Sequence[Node],
        target: Target,
        *,
        compiler: Compiler | None = None,
        flags: Sequence[str] = FLAGS,
        sanitize: bool = False,
        seed: int = 0,
        reference: Target | None = None,
        runner: str | None = None,
        signatures: Mapping[int, Signature] = MappingProxyType({}),
    ):
        self.impls, self.target, self._signatures = tuple(impls), target, signatures
        self._compiler, self._runner = compiler or find_compiler(info=target.info), find_runner(target.info, runner)
        self._flags, self._sanitize, self._seed, self._reference = tuple(flags), sanitize, seed, reference

    def check(self, index: int) -> None:
        """Verify program number `index`. Raises VerificationError, with a Spec file that reproduces the fault."""
        trial = self._built[index]
        try:
            if trial.error:
                raise trial.error
            assert trial.kernel is not None
            verify(trial.kernel, self._seed, reference=trial.reference)
            if self._sanitize:
                self._check_sanitized(index, trial.kernel)
        except MorelloError as error:
            text = spec_file(trial.impl, self.target, signature=self._signatures.get(index))
            raise VerificationError(f"{error.message}\n\n{text}", error.hint) from error

    def build(self) -> None:
        """Build all programs, and run them under the sanitizers if asked to."""
        _ = self._sanitized if self._sanitize else self._built

    @cached_property
    def _built(self) -> list[_Trial]:
        trials = [self._trial(index, impl) for index, impl in enumerate(self.impls)]
        kernels = [trial.kernel for trial in trials if trial.kernel]
        failed = build_together(kernels, self._compiler, self._flags)
        references = [trial.reference.function() for trial in trials if trial.reference]
        build_together([one for one in references if one], native_compiler(self._compiler), FLAGS)
        return [
            attrs.evolve(trial, error=failed[trial.kernel.program.name])
            if trial.kernel and trial.kernel.program.name in failed
            else trial
            for trial in trials
        ]

    def _trial(self, index: int, impl: Node) -> _Trial:
        try:
            program = self.target.emitter.emit(impl, self.target, f"p{index}", self._signatures.get(index))
            kernel = function_of(impl, self.target, program, self._compiler, self._runner)
            native = native_compiler(self._compiler)
            reference = Reference(impl.spec.logical, native, self._reference, f"reference{index}")
            reference.function()
            return _Trial(impl, kernel, reference)
        except MorelloError as error:
            return _Trial(impl, None, None, error)

    # Under the sanitizers.

    @cached_property
    def _data(self) -> list[tuple[DataSet, list[np.ndarray]]]:
        """Return, per program, one of the data sets and an array for each operand."""
        sets = []
        for index, impl in enumerate(self.impls):
            logical = impl.spec.logical
            setting = DataSetting.of(logical.op, tuple(map(int, logical.shape)), [one.dtype for one in logical.states])
            choices = [*data_sets(setting, thorough=False)]
            data = choices[index % len(choices)]
            sets.append((data, data.arrays(self._seed, setting)))
        return sets

    @cached_property
    def _sanitized(self) -> dict[int, list[np.ndarray] | VerificationError]:
        """Return what the programs that compile write, or what the sanitizers say, by number."""
        by_flags: dict[tuple[str, ...], dict[int, NativeFunction]] = defaultdict(dict)
        for index, trial in enumerate(self._built):
            if trial.kernel and not trial.error:
                by_flags[trial.kernel.program.flags][index] = trial.kernel
        found: dict[int, list[np.ndarray] | VerificationError] = {}
        for kernels in by_flags.values():
            jobs = [self._job(index, kernel) for index, kernel in kernels.items()]
            found.update(zip(kernels, run_all_sanitized(jobs, self._compiler, runner=self._runner), strict=True))
        return found

    def _job(self, index: int, kernel: NativeFunction) -> Job:
        rng = np.random.default_rng(self._seed)
        values, operands, arrays = self._data[index][1], kernel.spec.operands, []
        for argument in kernel.arguments:
            value, tensor = values[argument.operand], operands[argument.operand]
            unread = random_values(rng, value.shape, tensor.state.dtype)
            arrays.append(pack(value if argument.reads else unread, tensor))
        return Job(kernel.program, kernel.spec, arrays)

    def _check_sanitized(self, index: int, kernel: NativeFunction) -> None:
        """Raise VerificationError for what the sanitizers say, and for a wrong result."""
        result = self._sanitized[index]
        if isinstance(result, VerificationError):
            raise result
        data, values = self._data[index]
        inputs = [value for value, one in zip(values, kernel.spec.logical.declared, strict=True) if one.reads]
        written = [kernel.spec.operands[argument.operand] for argument in kernel.arguments if argument.writes]
        check_results(
            kernel, data, inputs, [unpack(array, tensor) for array, tensor in zip(result, written, strict=True)]
        )
