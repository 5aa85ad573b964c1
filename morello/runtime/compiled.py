"""The kernel that users get: it verifies and times itself."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from morello.kernels.target import Target
from morello.runtime.kernel import Kernel
from morello.runtime.toolchain import Compiler, is_auto

if TYPE_CHECKING:
    from morello.runtime.fastest import Choice
    from morello.runtime.metrics import Reading
    from morello.runtime.timing import BenchReport
    from morello.runtime.verify import CheckReport


class CompiledKernel(Kernel):
    """A `Kernel` with methods that check and measure it.

    Where `auto` stands for the compiler, it finds the one whose code for it runs fastest.
    """

    @cached_property
    def choice(self) -> Choice | None:
        """Return the compilers there were to choose from, with their times; None unless `auto` was asked for."""
        given = self._compiler
        if isinstance(given, Compiler) or not is_auto(given):
            return None
        from morello.runtime.fastest import fastest

        return fastest(self)

    @cached_property
    def compiler(self) -> Compiler:
        return super().compiler if self.choice is None else self.choice.compiler

    def check(self, seed: int = 0, thorough: bool = False, reference: Target | None = None) -> CheckReport:
        """Run it on random and adversarial data against the operation's meaning and the reference target.

        `reference` is the installed reference_c unless given. Raises VerificationError for the first wrong value.
        """
        from morello.runtime.verify import verify

        return verify(self, seed, thorough, reference)

    def bench(self, min_time: float = 0.3, repeats: int = 5, seed: int = 0, threads: int | None = None) -> BenchReport:
        """Time it on random data, for at least `min_time` seconds in `repeats` measurements."""
        from morello.runtime.timing import bench

        return bench(self, min_time, repeats, seed, threads)

    def readings(self, seed: int = 0) -> tuple[Reading, ...]:
        """Measure it on random data by the metrics of its target, the most telling first; by none if there are none."""
        from morello.runtime.metrics import readings

        return readings(self, seed)
