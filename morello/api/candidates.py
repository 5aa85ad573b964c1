"""Microkernels that implement a Spec directly, and the rules that exclude the others."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from morello.host import missing_features
from morello.ir.limits import fits
from morello.ir.spec import Spec
from morello.kernels.microkernel import OPERATION, mismatch
from morello.kernels.target import Target
from morello.rewrites.select import checked_cost, checked_needs

#: Rules in addition to those of a kernel's declaration: free registers, and features of the CPU.
REGISTERS, FEATURES = "registers", "CPU features"


@attrs.frozen
class KernelCandidate:
    """A microkernel and its cost for a Spec, or the rule that the Spec or the machine breaks."""

    kernel: str
    cost: int | None
    rule: str | None
    detail: str = ""

    @property
    def for_other_operation(self) -> bool:
        """Return whether the kernel does not implement the Spec's operation."""
        return self.rule == OPERATION


def kernel_candidates(spec: Spec, target: Target) -> list[KernelCandidate]:
    """Return all microkernels of a target: those that implement the Spec, cheapest first, then the others."""
    found = [*_candidates(spec, target)]
    for kernel in target.unavailable:
        refused = mismatch(kernel, spec.logical)
        if refused is not None and refused.rule == OPERATION:
            found.append(KernelCandidate(kernel.name, None, OPERATION, refused.detail))
        else:
            lacks = ", ".join(target.lacking(kernel))
            found.append(KernelCandidate(kernel.name, None, FEATURES, f"{target.full_name} lacks {lacks}: see --cpu"))
    return sorted(found, key=lambda one: (one.for_other_operation, one.cost is None, one.cost or 0))


def _candidates(spec: Spec, target: Target) -> Iterator[KernelCandidate]:
    for kernel in target.kernels:
        refused = mismatch(kernel, spec.logical)
        if refused is not None:
            yield KernelCandidate(kernel.name, None, refused.rule, refused.detail)
            continue
        needs = tuple(map(int, checked_needs(kernel, spec.logical, target)))
        if not fits(needs, spec.limits):
            levels = zip(target.levels, needs, spec.limits, strict=True)
            short = [f"{level.name}: {need} B of {limit} B" for level, need, limit in levels if need > limit]
            yield KernelCandidate(kernel.name, None, REGISTERS, f"needs {', '.join(short)}")
            continue
        lacks = missing_features(kernel.cpu_features)
        detail = f"this machine lacks {', '.join(lacks)}, to run it" if lacks else ""
        yield KernelCandidate(kernel.name, int(checked_cost(kernel, spec.logical, target)), None, detail)
