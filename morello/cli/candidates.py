"""Microkernels that implement a Spec directly, and the rules that exclude the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import click

from morello.host import missing_features
from morello.ir.limits import fits
from morello.ir.spec import Spec
from morello.kernels.microkernel import OPERATION, mismatch
from morello.kernels.target import Target
from morello.report.tables import Column, print_table
from morello.rewrites.select import checked_cost, checked_needs

#: Rules in addition to those of a kernel's declaration: free registers, and features of the CPU.
REGISTERS, FEATURES = "registers", "CPU features"


@attrs.frozen
class Candidate:
    """A microkernel and its cost for a Spec, or the rule that the Spec or the machine breaks."""

    kernel: str
    cost: int | None
    rule: str | None
    detail: str = ""


def candidates(spec: Spec, target: Target, base: Target) -> list[Candidate]:
    """Return all microkernels of a target: those that implement the Spec, cheapest first, then the others.

    `base` is the target without a profile, which has all microkernels.
    """
    found = [*_candidates(spec, target)]
    for name, lacks in target.unavailable.items():
        refused = mismatch(base.kernels_by_name[name], spec.logical)
        if refused is not None and refused.rule == OPERATION:
            found.append(Candidate(name, None, OPERATION, refused.detail))
        else:
            found.append(
                Candidate(name, None, FEATURES, f"the machine of profile {target.profile} lacks {', '.join(lacks)}")
            )
    return sorted(found, key=lambda one: (one.rule == OPERATION, one.cost is None, one.cost or 0))


def _candidates(spec: Spec, target: Target) -> Iterator[Candidate]:
    for kernel in target.kernels:
        refused = mismatch(kernel, spec.logical)
        if refused is not None:
            yield Candidate(kernel.name, None, refused.rule, refused.detail)
            continue
        needs = tuple(map(int, checked_needs(kernel, spec.logical, target)))
        if not fits(needs, spec.limits):
            levels = zip(target.levels, needs, spec.limits, strict=True)
            short = [f"{level.name}: {need} B of {limit} B" for level, need, limit in levels if need > limit]
            yield Candidate(kernel.name, None, REGISTERS, f"needs {', '.join(short)}")
            continue
        lacks = missing_features(kernel.cpu_features)
        detail = f"this machine lacks {', '.join(lacks)}, to run it" if lacks else ""
        yield Candidate(kernel.name, int(checked_cost(kernel, spec.logical, target)), None, detail)


def print_candidates(kernels: Sequence[Candidate]) -> None:
    """Print the candidates for the Spec's operation, and the number of the others."""
    shown = [one for one in kernels if one.rule != OPERATION]
    columns = [Column("kernel"), Column("cost", number=True), Column("rule broken"), Column("why", wraps=True)]
    rows = [("–" if one.cost is None else f"{one.cost:,}", one.rule or "–", one.detail) for one in shown]
    print_table(columns, [(one.kernel, *row) for one, row in zip(shown, rows, strict=True)])
    others = len(kernels) - len(shown)
    if others:
        click.echo(f"{others:,} kernels are for other operations: --json lists them, too")
