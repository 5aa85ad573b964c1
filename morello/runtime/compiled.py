"""The kernel that users get: it verifies and times itself."""

from __future__ import annotations

from morello.kernels.target import Target
from morello.runtime.kernel import Kernel
from morello.runtime.timing import BenchReport, bench
from morello.runtime.verify import CheckReport, verify


class CompiledKernel(Kernel):
    """A `Kernel` with methods that check and measure it."""

    def check(self, seed: int = 0, thorough: bool = False, reference: Target | None = None) -> CheckReport:
        """Run it on random and adversarial data against the operation's meaning and the reference target.

        `reference` is the installed reference_c unless given. Raises VerificationError for the first wrong value.
        """
        return verify(self, seed, thorough, reference)

    def bench(self, min_time: float = 0.3, repeats: int = 5, seed: int = 0, threads: int | None = None) -> BenchReport:
        """Time it on random data, for at least `min_time` seconds in `repeats` measurements."""
        return bench(self, min_time, repeats, seed, threads)
