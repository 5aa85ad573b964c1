"""Microkernels that implement a Spec directly, and the rules that exclude the others."""

from __future__ import annotations

from collections.abc import Iterator

import attrs

from morello.host import missing_features
from morello.ir.limits import fits
from morello.ir.spec import Spec
from morello.kernels.microkernel import OPERATION, mismatch
from morello.kernels.target import BASE, Target
from morello.plugins.registry import installed
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


def kernel_candidates(spec: Spec, target: Target, base: Target | None = None) -> list[KernelCandidate]:
    """Return all microkernels of a target: those that implement the Spec, cheapest first, then the others.

    `base` has all microkernels; by default it is the installed target of this name without a profile.
    """
    base = base or installed().target(target.name, BASE)
    found = [*_candidates(spec, target)]
    for name, lacks in target.unavailable.items():
        refused = mismatch(base.kernels_by_name[name], spec.logical)
        if refused is not None and refused.rule == OPERATION:
            found.append(KernelCandidate(name, None, OPERATION, refused.detail))
        else:
            found.append(
                KernelCandidate(
                    name, None, FEATURES, f"the machine of profile {target.profile} lacks {', '.join(lacks)}"
                )
            )
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
