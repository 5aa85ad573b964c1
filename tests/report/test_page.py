"""The page of `morello explain --html`."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

import morello
from morello import api
from morello.api.kernel import Kernel
from morello.frontend import parse_spec
from morello.plugins.registry import installed
from morello.report.drawings import layout_svg, order_in_memory
from morello.report.page import lines_of, tree_rows
from morello.report.steps import PageStep, lanes

SPEC = "Matmul(2×13×16×16, L3, L3, L3)"
HOSTILE = '<script>alert("1")</script>&amp;\'.spec'
_VOID = {"meta", "link", "br", "img"}


class Reader(HTMLParser):
    """Collects ids, references, nodes of programs and text; complains about tags that are not closed in order."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.references: list[str] = []
        self.nodes = 0
        self.texts: list[str] = []
        self.code = ""
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        assert not {"src", "onclick", "onload", "onerror"} & {*found}
        if tag != "meta":
            self.open.append(tag)
        self.ids += [found["id"]] if "id" in found else []
        self.references += [found[name] for name in ("aria-labelledby", "href") if name in found]
        self.nodes += "data-level" in found

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)
        self.code += data if "pre" in self.open else ""


@pytest.fixture(scope="module")
def kernel() -> Kernel:
    """Returns a program whose parallel loop is a function of its own."""
    return morello.compile(morello.goal(SPEC, target="x86_avx2").tile(1, 13, 16, 16, parallel=True), db=False)


@pytest.fixture(scope="module")
def page(kernel: Kernel) -> str:
    explained = kernel, kernel.explain(runner_ups=1, noise=0, db=False)
    return api.explanation_page(HOSTILE, [explained, explained], (PageStep(HOSTILE, "Relu", 2, 1, ()),))


def test_the_page_is_whole_and_escaped(kernel: Kernel, page: str) -> None:
    found = Reader(page)
    assert len({*found.ids}) == len(found.ids)
    assert {one.removeprefix("#") for one in found.references} <= {*found.ids}
    assert found.texts.count(HOSTILE) == 2  # heading and step
    assert "<script>alert" not in page
    assert not re.search(r"https?:|@import|url\(", page)
    rows = [*tree_rows(kernel.explain(runner_ups=1, noise=0, db=False).shown)]
    assert found.nodes == 2 * len(rows)
    shown = [*(one.label for one in rows), *(one.name for one in kernel.program.parameters)]
    shown += [str(one.tensor) for one in kernel.program.parameters]
    assert {*shown} <= {*found.texts}
    assert found.code.count(kernel.source.rstrip()) == 2


def test_nodes_have_the_lines_that_they_print(kernel: Kernel) -> None:
    rows, lines = [*tree_rows(kernel.explain(db=False).tree)], kernel.source.splitlines()
    found = lines_of(rows, kernel.program)
    for row, own in zip(rows, found, strict=True):
        text = "\n".join(lines[number - 1] for number in own)
        assert text.count("{") == text.count("}")
        assert row.first.kind != "kernel" or (row.first.kernel or "") in text
    calls = [{*own} for row, own in zip(rows, found, strict=True) if row.first.kernel]
    assert len(calls) > 1
    assert all({*found[0]} > own for own in calls)
    assert sum(map(len, calls)) == len(set.union(*calls))


@pytest.mark.parametrize("name", ["boundaries", "jam"])
def test_equal_nodes_have_lines_of_their_own(name: str) -> None:
    (goal,) = api.parse(Path(__file__).parents[1] / "golden" / f"{name}.spec").values()
    kernel = api.compile(goal, db=False)
    rows = [*tree_rows(kernel.explain(db=False).tree)]
    calls = [{*own} for row, own in zip(rows, lines_of(rows, kernel.program), strict=True) if row.first.kernel]
    assert len({row.key for row in rows if row.first.kernel}) < len(calls)
    assert sum(map(len, calls)) == len(set.union(*calls))


def test_layouts_are_drawn_in_the_order_of_memory() -> None:
    spec = parse_spec("Move(1×16×4×3, (f32, L3, nchw8c), L3, serial)", installed().target("x86_avx2"))
    tensor = spec.operands[0]
    assert [*order_in_memory(tensor, "nchw")] == [
        ("c", "2", "384 B"), ("h", "4", "96 B"), ("w", "3", "32 B"), ("c, within a strip", "8", "4 B"),
    ]  # fmt: skip
    drawn = ElementTree.fromstring(layout_svg(tensor, "nchw"))
    jumps, order = (drawn.find(f"*[@class='{name}']") for name in ("jump", "order"))
    assert jumps is not None
    assert order is not None
    # Two strips of 8 channels in each of three columns.
    assert (jumps.attrib["d"].count("M"), order.attrib["d"].count("M")) == (5, 6 * 7)


@given(st.lists(st.sets(st.integers(1, 6), max_size=3), max_size=12))
def test_no_step_is_in_the_lane_of_one_that_is_read_later(distances: list[set[int]]) -> None:
    reads = [tuple(number - one for one in back if one <= number) for number, back in enumerate(distances)]
    found = lanes([PageStep("step", "Relu", 1, 1, one) for one in reads])
    for number, lane in enumerate(found):
        last = max((later for later, one in enumerate(reads) if number in one), default=number)
        assert lane not in found[number + 1 : last]


@contextmanager
def browser(folder: Path) -> Generator[Any]:
    """Yield a function that sends commands of WebDriver to a new Chromium without a network."""
    driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
    assert driver.stdout
    try:
        port = next(found[1] for line in driver.stdout if (found := re.search(r"successfully on port (\d+)", line)))
        without = ("gpu", "quic", "background-networking", "component-update", "sync")
        arguments = ["--headless", "--no-sandbox", "--no-first-run", *(f"--disable-{one}" for one in without)]
        arguments.append(f"--user-data-dir={folder}")
        session = ""

        def send(path: str, method: str = "POST", **body: Any) -> Any:
            url = f"http://127.0.0.1:{port}/session{session}{path}"
            data = json.dumps(body).encode() if method == "POST" else None
            with urllib.request.urlopen(urllib.request.Request(url, data, method=method), timeout=60) as answer:
                return json.load(answer)["value"]

        options = {"goog:chromeOptions": {"args": arguments}, "goog:loggingPrefs": {"browser": "ALL"}}
        session = "/" + send("", capabilities={"alwaysMatch": options})["sessionId"]
        yield send
        send("", "DELETE")
    finally:
        driver.terminate()
        driver.wait()


@pytest.mark.slow
@pytest.mark.skipif(
    not (shutil.which("chromium") and shutil.which("chromedriver")), reason="chromium or chromedriver is not installed"
)
def test_keys_choose_nodes_in_a_browser(kernel: Kernel, tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text(api.explanation_page("one.spec", [(kernel, kernel.explain(db=False))]), encoding="utf-8")
    with browser(tmp_path / "profile") as send:

        def run(script: str) -> Any:
            return send("/execute/sync", script=f"return {script}", args=[])

        def press(*keys: str) -> None:
            down = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
            send("/actions", actions=[{"type": "key", "id": "keys", "actions": down}])

        send("/url", url=path.as_uri())
        press("\ue004", "\ue004")
        assert run("document.activeElement.dataset.level") == "1"
        assert run("document.querySelectorAll('.on').length") == 0
        press("\ue010", "\ue007")  # End, Enter
        label = run("document.activeElement.querySelector('a').textContent")
        assert run("document.activeElement.getAttribute('aria-selected')") == "true"
        assert label.split()[-1] in run("document.querySelector('.on').textContent")
        assert run("document.querySelector('.chosen').textContent").startswith(f"{label}: lines ")
        press("\ue011", "\ue012")  # Home, Left
        assert run("document.activeElement.getAttribute('aria-expanded')") == "false"
        assert run("[...document.querySelectorAll('[data-level]')].filter(row => !row.hidden).length") == 1
        assert [one for one in send("/se/log", type="browser") if one["level"] == "SEVERE"] == []
