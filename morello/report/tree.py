"""Programs as trees of plain data with costs, and these as text."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import attrs
from rich.text import Text

from morello.codegen.loops import goes_on, until
from morello.ir.impl import Alloc, CostAndPeak, Impl, KernelCall, Leaf, Loop, Part, combine, cost_and_peak
from morello.ir.limits import Limits
from morello.kernels.target import Target
from morello.report.tables import Column, Row
from morello.report.words import memory


@attrs.frozen
class RunnerUp:
    """A step that was not taken, and the cost of one run of the best program that begins with it, or a lower bound.

    `more` is the difference to the chosen step's cost, `percent` the same in percent of it.
    """

    step: str
    cost: int
    exact: bool
    more: int
    percent: float

    @property
    def cost_text(self) -> str:
        return f"{'' if self.exact else '≥ '}{self.cost:,}"

    @property
    def more_text(self) -> str:
        """Return the difference in words."""
        if not self.more:
            return "as cheap, comes later" if self.exact else "not cheaper"
        return f"{'' if self.exact else '≥ '}{self.more:,} more ({self.percent:.3g} %)"


@attrs.frozen
class Branch:
    """A node of a program. Costs are the model's; memory is in bytes per level, fastest first.

    `cost` is that of one run, `own` the node's part in it, `runs` the number of runs in a call, and `share` the
    percentage of its own cost in all runs of the program's cost; shares add up to 100. `holds` is the peak memory of
    the node itself, `peak` that with the nodes below. A `continued` loop contains only a loop over the same dimension.
    `runner_ups` are the best other steps, if requested. Holes, Specs without a program, cost and hold nothing, so that
    the figures of nodes above are lower bounds.
    """

    step: str
    kind: str
    kernel: str | None
    view: bool
    role: str
    spec: str
    cost: int
    own: int
    runs: int
    share: float
    holds: dict[str, int]
    peak: dict[str, int]
    continued: bool
    children: tuple[Branch, ...]
    runner_ups: tuple[RunnerUp, ...] | None = None

    @property
    def label(self) -> str:
        """Return the node's kernel or step, with its role."""
        role = "" if self.role == "body" else f"{self.role}: "
        return f"{role}{self.kernel or self.step}{' (view)' if self.view else ''}"

    @property
    def partial(self) -> bool:
        """Return True for holes and the nodes above them."""
        return self.kind == "hole" or any(child.partial for child in self.children)

    @property
    def runner_ups_below(self) -> int:
        """Return the number of runner-ups of the node and of the nodes below."""
        return len(self.runner_ups or ()) + sum(child.runner_ups_below for child in self.children)

    def without_noise(self, percent: float, total: int | None = None) -> Branch:
        """Return the program without runner-ups that cost less than `percent` of `total`, its cost, more."""
        total = total or self.cost
        kept = None
        if self.runner_ups is not None:
            kept = tuple(one for one in self.runner_ups if 100 * one.more * self.runs >= percent * total)
        children = tuple(child.without_noise(percent, total) for child in self.children)
        return attrs.evolve(self, runner_ups=kept, children=children)

    def as_dict(self) -> dict[str, Any]:
        """Return nested dictionaries and lists."""
        fields = {field.name: getattr(self, field.name) for field in attrs.fields(type(self))}
        others = None if self.runner_ups is None else [attrs.asdict(one) for one in self.runner_ups]
        children = [child.as_dict() for child in self.children]
        return {**fields, "runner_ups": others, "children": children}


#: The runner-ups of a node, None if unknown.
RunnerUps = Callable[[Impl], tuple[RunnerUp, ...] | None]


def program_tree(impl: Impl, target: Target, others: RunnerUps | None = None) -> Branch:
    """Return a program as data."""
    return _branch(impl, target, "body", 1, cost_and_peak(impl, partial=True).cost, others or (lambda impl: None))


def _branch(impl: Impl, target: Target, role: str, runs: int, total: int, others: RunnerUps) -> Branch:
    if isinstance(impl, Leaf):
        return _hole(impl, target, role, runs)
    expansion = impl.expansion
    children = tuple(
        _branch(child, target, part.role, runs * int(part.times), total, others)
        for part, child in zip(expansion.parts, impl.children, strict=True)
    )
    total_figures = combine(
        expansion, [CostAndPeak(child.cost, tuple(child.peak.values())) for child in children], impl.grids
    )
    return Branch(
        step=str(expansion.step),
        kind=expansion.kind,
        kernel=expansion.kernel if isinstance(expansion, KernelCall) else None,
        view=isinstance(expansion, Alloc) and expansion.view,
        role=role,
        spec=impl.spec.logical.short(),
        cost=int(total_figures.cost),
        own=int(expansion.cost),
        runs=runs,
        share=100 * int(expansion.cost) * runs / (total or 1),
        holds=by_level(_held(expansion.needs, expansion.parts), target),
        peak=by_level(total_figures.peak, target),
        continued=isinstance(expansion, Loop)
        and not expansion.parallel
        and len(children) == 1
        and goes_on(expansion.parts[0], impl.children[0]),
        children=children,
        runner_ups=others(impl),
    )


def _hole(leaf: Leaf, target: Target, role: str, runs: int) -> Branch:
    nothing = by_level(target.nothing(), target)
    return Branch(
        step=str(leaf),
        kind="hole",
        kernel=None,
        view=False,
        role=role,
        spec=leaf.spec.logical.short(),
        cost=0,
        own=0,
        runs=runs,
        share=0,
        holds=nothing,
        peak=nothing,
        continued=False,
        children=(),
    )


def _held(needs: Limits, parts: Sequence[Part]) -> Limits:
    """Return the most bytes of each level that a node needs itself or holds while a child runs."""
    return tuple(max(column) for column in zip(needs, *(part.live for part in parts), strict=True))


def by_level(amounts: Limits, target: Target) -> dict[str, int]:
    """Return bytes by the name of the level."""
    return {level.name: int(amount) for level, amount in zip(target.levels, amounts, strict=True)}


def tree_table(root: Branch, *, compact: bool = False) -> tuple[list[Column], list[Row]]:
    """Return a program with a node a line. Directly nested loops over one dimension share a line without runner-ups.

    `compact` leaves out the columns on Specs and memory. Above holes, cost and peak are lower bounds, with `≥`, and no
    share is known.
    """
    columns = [Column("program"), *(Column(name, number=True) for name in ("cost", "runs", "share"))]
    if not compact:
        columns += [Column(name, wraps=True, spare=at) for at, name in enumerate(("implements", "holds", "peak"), 1)]
    rows: list[Row] = []
    partial = root.partial
    for guides, rest, branch, last in _lines(root):
        label = branch.label + (until(branch.step, last.step) if last is not branch else "")
        program = Text.assemble((guides, "dim"), (label, "bold" if branch.kernel else ""))
        least = "≥ " if branch.partial else ""
        cost = "–" if branch.kind == "hole" else f"{least}{branch.cost:,}"
        share = f"{branch.share:.1f} %" if branch.own and not partial else "–"
        peak = f"{least if any(branch.peak.values()) else ''}{memory(branch.peak)}"
        details = () if compact else (branch.spec, memory(branch.holds), peak)
        rows.append((program, cost, f"{branch.runs:,}", share, *details))
        for one in branch.runner_ups or ():
            cells = (f"{rest}  or {one.step}", one.cost_text, "", "", *(() if compact else (one.more_text, "", "")))
            rows.append([Text(cell, "dim") for cell in cells])
    return columns, rows


def last_merged(branch: Branch) -> Branch:
    """Return the last of the directly nested loops that share a line with `branch`."""
    last = branch
    while last.continued and not branch.runner_ups and not last.children[0].runner_ups:
        (last,) = last.children
    return last


def _lines(branch: Branch, head: str = "", rest: str = "") -> Iterator[tuple[str, str, Branch, Branch]]:
    """Yield each line in program order: its guides, those of the line below, its first and last node.

    A single child is directly below its parent.
    """
    last = last_merged(branch)
    yield head, rest + ("│ " if len(last.children) > 1 else ""), branch, last
    if len(last.children) == 1:
        yield from _lines(last.children[0], rest, rest)
        return
    for number, child in enumerate(last.children, 1):
        is_last = number == len(last.children)
        yield from _lines(child, rest + ("└ " if is_last else "├ "), rest + ("  " if is_last else "│ "))
