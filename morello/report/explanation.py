"""Explanations of programs: parts of cost and memory, the bottleneck, and runner-ups."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from html import escape
from typing import Any

import attrs

from morello.ir.signature import Signature
from morello.ir.spec import Spec
from morello.kernels.target import Target
from morello.report.balance import Balance
from morello.report.html import table_html
from morello.report.tables import Column, Row, table_text
from morello.report.tree import Branch, tree_table
from morello.report.words import cost_words, memory


@attrs.frozen(repr=False)
class Explanation:
    """An explained program: text when printed, HTML in notebooks, data by `as_dict`.

    `tree` has its nodes, with runner-ups if requested. `low` is the proven lower bound of the cost, for all programs or
    `among` some, `space` their tiles and layouts, and `origin` the source of the program, in words. Runner-ups that
    cost less than `noise` percent of the program more are not shown. `signature` is that of the Spec's text.
    """

    name: str
    spec: Spec
    target: Target
    tree: Branch
    balance: Balance
    low: int
    origin: str
    signature: Signature
    noise: float = 1.0
    among: str = ""
    space: str = ""

    def __str__(self) -> str:
        return "\n".join([*self.head, table_text(*self.table).rstrip("\n"), *self.foot])

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return "\n".join([*map(_paragraph, self.head), table_html(*self.table), *map(_paragraph, self.foot)])

    @property
    def head(self) -> Iterator[str]:
        """Yield the lines above the table."""
        yield f"{self.name} for {self.target.label}: {self.signature.text(self.spec.logical)}"
        if words := self.spec.logical.implied:
            yield words
        yield f"cost {cost_words(self.tree.cost, self.target)}; memory: {memory(self.tree.peak)}; {self.origin}"
        yield str(self.balance)
        if self.space and self.low > 1:
            proof = "optimal" if self.low >= self.tree.cost else f"at least {self.low:,}"
            yield f"{proof} among {self.among or 'programs'} with {self.space}"

    @property
    def table(self) -> tuple[list[Column], list[Row]]:
        """Return the columns and rows of the table: a node a line."""
        return tree_table(self.shown)

    @property
    def foot(self) -> Iterator[str]:
        """Yield the lines below the table."""
        hidden = self.tree.runner_ups_below - self.shown.runner_ups_below
        if hidden:
            noise = f"{self.noise:g} % of the program's cost"
            yield f"{hidden:,} runner-ups within {noise} are left out: a noise of 0 shows them"

    @cached_property
    def shown(self) -> Branch:
        """Return the program without runner-ups within the noise."""
        return self.tree.without_noise(self.noise)

    def as_dict(self) -> dict[str, Any]:
        """Return the same as plain data, as `morello explain --json` prints it; times in seconds, memory in bytes."""
        unit = self.target.unit_seconds
        return {
            "name": self.name,
            "target": self.target.full_name,
            "profile": self.target.profile,
            "spec": self.signature.text(self.spec.logical),
            "cost": self.tree.cost,
            "cost_unit": self.target.info.cost_unit or None,
            "seconds": None if unit is None else self.tree.cost * unit,
            "bound": self.balance.bound,
            "parts": self.balance.shares,
            "low": self.low,
            "among": self.among or None,
            "space": self.space or None,
            "peak": self.tree.peak,
            "program": self.tree.as_dict(),
        }


def _paragraph(line: str) -> str:
    return f"<p>{escape(line)}</p>"
