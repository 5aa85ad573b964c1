"""The steps of a model as HTML: their graph, one step a row, with the time of each."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

import attrs

from morello.kernels.target import Target
from morello.report.words import cost_words

#: The height of a row, and the width of a lane of the graph.
_ROW, _LANE = 30, 16


@attrs.frozen
class PageStep:
    """A step of a model: its `operations`, the number of its kernel on the page, and the earlier steps it reads."""

    name: str
    operations: str
    kernel: int
    cost: int
    reads: tuple[int, ...]


def steps_html(steps: Sequence[PageStep], target: Target) -> str:
    """Return the section of the steps; empty without steps."""
    if not steps:
        return ""
    total, most = sum(one.cost for one in steps), max(one.cost for one in steps)
    heads = {
        "step": True,
        "name": False,
        "operations": False,
        "time": True,
        "share": True,
        "compared": False,
        "reads": False,
    }
    head = "".join(f'<th scope="col"{" class=n" * number}>{one}</th>' for one, number in heads.items())
    rows = "\n".join(
        f'<tr id="s{number}"><td class="n">{number}</td>'
        f'<th scope="row"><a href="#k{one.kernel}">{escape(one.name)}</a></th><td>{escape(one.operations)}</td>'
        f'<td class="n">{escape(cost_words(one.cost, target).rpartition(": ")[2].partition(" at ")[0])}</td>'
        f'<td class="n">{100 * one.cost / total:.1f} %</td><td><i style="width:{100 * one.cost / most:.1f}%"></i></td>'
        f"<td>{', '.join(str(read + 1) for read in one.reads) or '–'}</td></tr>"
        for number, one in enumerate(steps, 1)
    )
    drawn, width = _graph(steps)
    words = "A name leads to the step's kernel; the graph shows which steps it reads."
    return f"""<section aria-labelledby="steps"><h2 id="steps">Steps</h2>
<p>{len(steps):,} steps, {escape(cost_words(total, target))}. {words}</p>
<div class="steps bars" style="padding-left:{width}px">{drawn}<table><thead><tr>{head}</tr></thead><tbody>
{rows}
</tbody></table></div></section>"""


def lanes(steps: Sequence[PageStep]) -> list[int]:
    """Return a column of the graph for each step: no other step is in it before the last one that reads the step."""
    last = {read: number for number, one in enumerate(steps) for read in one.reads}
    held, found = set[int](), list[int]()
    for number, one in enumerate(steps):
        ending = {found[read] for read in one.reads if last[read] == number}
        held -= ending
        lane = min(ending, default=next(lane for lane in range(len(held) + 1) if lane not in held))
        held |= {lane} if number in last else set()
        found.append(lane)
    return found


def _graph(steps: Sequence[PageStep]) -> tuple[str, int]:
    """Return the graph as SVG, and its width."""
    at = [(_LANE * lane + 10, _ROW * number + _ROW // 2) for number, lane in enumerate(lanes(steps))]
    edges = ""
    for number, one in enumerate(steps):
        x, y = at[number]
        for left, top in (at[read] for read in one.reads):
            edges += f"M{left} {top}V{y - _ROW}" + (f"V{y}" if left == x else f"C{left} {y} {x} {y - _ROW} {x} {y}")
    dots = "".join(f'<circle cx="{x}" cy="{y}" r="5"/>' for x, y in at)
    width = max(x for x, _ in at) + 12
    size = f'width="{width}" height="{_ROW * len(steps)}"'
    words = "Graph of the steps; the column `reads` lists its edges"
    return f'<svg {size} role="img" aria-label="{words}"><path class="order" d="{edges}"/>{dots}</svg>', width
