"""Explanations of kernels, goals and Specs in Python, as text and in notebooks."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path

import attrs
import pytest
from click.testing import CliRunner

import morello
from morello.api.kernel import Kernel
from morello.cli.app import main
from morello.errors import SpecError
from morello.frontend import parse_spec
from morello.plugins.registry import installed
from morello.report.html import facts_html, table_html
from morello.report.tables import Column

#: No kernel adds up bytes, so that there are steps to choose between.
SPEC = "Matmul(1×2×2×8, (u8, L1), (u8, L1), (u8, L1), serial)"
UNPROVEN = "(Softmax(3×5, L1, L1, serial), [12, 32, 128, 0, 0, 0])"
FILL = "FillZero(8, (f32, L1), serial)"


def compiled(text: str, budget: morello.SearchBudget | None = None) -> Kernel:
    return morello.compile(text, target="x86_avx2", db=False, budget=budget)


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    return compiled(SPEC)


@pytest.fixture
def explain_command(tmp_path: Path) -> Callable[..., str]:
    """Returns the output of `morello explain` for the Spec."""
    path = tmp_path / "one.spec"
    path.write_text(f"target x86_avx2\nspec kernel = {SPEC}\n", encoding="utf-8")
    return lambda *options: CliRunner(catch_exceptions=False).invoke(main, ["explain", str(path), *options]).stdout


@pytest.mark.parametrize("runner_ups", [0, 2])
def test_explanations_equal_those_of_the_command(
    kernel: Kernel, explain_command: Callable[..., str], runner_ups: int
) -> None:
    explanation = kernel.explain(runner_ups, noise=1, db=False)
    printed = explain_command("--no-db", "--runner-ups", str(runner_ups))
    # The command prints the time of the search, Python the proof.
    expected = re.sub(r"searched .* Specs in .* s$", "optimal", printed.strip(), flags=re.MULTILINE)
    assert str(explanation) == repr(explanation) == expected
    assert ("  or " in str(explanation)) == (runner_ups > 0)
    assert explanation.as_dict() == json.loads(explain_command("--no-db", "--runner-ups", str(runner_ups), "--json"))[0]


def test_the_tree_has_a_line_for_each_node(kernel: Kernel) -> None:
    head, first, *rest = kernel.tree.splitlines()
    assert head.split() == ["program", "cost", "runs", "share"]
    assert f"{kernel.cost:,}" in first
    assert any("Mult" in line or "Assign" in line for line in rest)


def test_the_proof_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    fill = morello.goal(FILL, target="x86_avx2")
    assert morello.compile(fill.select("MemsetZero")).proof == "as scheduled"
    assert morello.compile(fill, db=False).proof == "optimal"
    # It is known of goals that were completed before, too.
    assert morello.compile(fill.synthesize(db=False)).proof == "optimal"
    assert fill.apply("synthesize").proof == "optimal"
    monkeypatch.setattr("morello.search.solve.core.QUOTA", 1)  # let search end anywhere, though it is small
    open_ = compiled(UNPROVEN, morello.SearchBudget(gap=0.5))
    assert open_.low < open_.cost
    assert re.fullmatch(r"within \d+(\.\d+)? % of the optimum \(proven\)", open_.proof)
    assert f"; {open_.proof}\n" in str(open_.explain(runner_ups=1, db=False))
    assert open_.goal.scheduled == morello.goal(UNPROVEN, target="x86_avx2").impl
    with pytest.raises(SpecError, match="unfinished"):
        _ = fill.proof


def test_the_space_of_a_proof_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    product = morello.goal("Matmul(1×2×4×16, (f32, L1), (f32, L1), (f32, L1), serial)", target="x86_avx2")
    found = str(morello.compile(product, db=False).explain(runner_ups=0))
    space = "tiles of powers of two; of 3, 5, 6 along m; of 16, 24, 32, 48 along n; up to 14 layouts of a tensor"
    assert f"\noptimal among programs with {space}\n" in found
    tiled = str(morello.compile(product.tile(1, 1, 16), db=False).explain(runner_ups=0))
    assert f"\noptimal among programs with the steps of the schedule; {space}\n" in tiled
    restricted = product.synthesize(db=False, without=["RegisterTile"])
    assert f"\noptimal among programs without [RegisterTile] with {space}" in str(
        morello.compile(restricted).explain(runner_ups=0)
    )
    by_hand = morello.goal(FILL, target="x86_avx2").select("MemsetZero")
    assert "among" not in str(morello.compile(by_hand).explain(runner_ups=0))
    monkeypatch.setattr("morello.search.solve.core.QUOTA", 1)  # let search end anywhere, though it is small
    unproven = compiled(UNPROVEN, morello.SearchBudget(gap=0.5)).explain(runner_ups=0)
    assert f"\nat least {unproven.low:,} among programs with tiles of powers of two; " in str(unproven)


def test_searches_of_subschedules_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("morello.search.solve.core.QUOTA", 1)
    halves = morello.goal("(Softmax(6×5, L1, L1, serial), [12, 32, 128, 0, 0, 0])", target="x86_avx2").tile(3, 5)
    done = halves.subschedule(0, lambda half: half.synthesize(False, False, morello.SearchBudget(gap=0.5)))
    assert done.scheduled == halves.impl
    best = halves.synthesize(False, False)
    assert done.low <= best.low == morello.compile(best).cost < morello.compile(done).cost
    assert done.proof.startswith("within")


class Reader(HTMLParser):
    """Collects rows of cells, and complains about tags that are not closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.rows: list[list[str]] = []
        self.text = ""

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.open.append(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data
        if self.open and self.open[-1] in ("td", "th"):
            self.rows[-1][-1] += data


def read(html: str) -> Reader:
    reader = Reader()
    reader.feed(html)
    reader.close()
    assert reader.open == []
    return reader


def test_notebooks_show_tables(kernel: Kernel) -> None:
    goal = morello.goal(SPEC, target="x86_avx2")
    facts = dict(read(goal._repr_html_()).rows)
    assert facts["schedule"] == "not scheduled"
    assert parse_spec(facts["Spec"], goal.target) == goal.spec
    assert not {"cost", "proof"} & {*facts}
    of_kernel = read(kernel._repr_html_()).rows
    assert ["proof", "optimal"] in of_kernel
    explanation = kernel.explain(runner_ups=1, noise=0)
    columns, rows = explanation.table
    shown = read(explanation._repr_html_())
    assert shown.rows == [[one.heading for one in columns], *([str(cell) for cell in row] for row in rows)]
    assert all(line in shown.text for line in [*explanation.head, *explanation.foot])


def test_text_in_tables_is_escaped() -> None:
    text = '<b>&amp;"</b>'
    assert read(table_html([Column(text)], [[text]])).rows == [[text], [text]]
    assert read(facts_html({text: text, "nothing": ""})).rows == [[text, text]]


def test_a_spec_is_its_text() -> None:
    target = installed().target("x86_avx2")
    spec = parse_spec("(Softmax(3×5, L1, (L1, ua), serial), [12, 32, 128, 0, 0, 0])", target)
    assert str(spec) == "(Softmax(3×5, (f32, L1, row_major), (f32, L1, row_major, ua), serial), [12, 32, 128, 0, 0, 0])"
    assert parse_spec(str(spec), target) == spec
    assert str(attrs.evolve(spec.logical, serial=False)).endswith("ua))")
