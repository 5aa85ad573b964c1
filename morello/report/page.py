"""Explanations of kernels as one page of HTML without scripts or styles from elsewhere."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from html import escape
from importlib.resources import files
from string import Template

import attrs
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers.c_cpp import CLexer

from morello.codegen.loops import until
from morello.ir.program import Program, of_operands
from morello.report.drawings import layout_svg, order_in_memory, roofline_svg
from morello.report.explanation import Explanation
from morello.report.rooflines import Roofline
from morello.report.steps import PageStep, steps_html
from morello.report.tree import Branch, last_merged
from morello.report.words import cost_words, memory

#: Tokens of C without a colour.
_PLAIN = re.compile(r'<span class="(?:w|n|p|o|nf)">([^<]*)</span>')


@attrs.frozen
class KernelPage:
    """A kernel's part of a page. `proof` is the gap to the optimum in words, `roof` None without arithmetic."""

    explanation: Explanation
    program: Program
    proof: str
    roof: Roofline | None


@attrs.frozen
class Page:
    """A page: its title, the kernels in order, and the steps of a model that call them."""

    title: str
    kernels: tuple[KernelPage, ...]
    steps: tuple[PageStep, ...] = ()


@attrs.frozen
class TreeRow:
    """A node of a program, or directly nested loops over one dimension: the first, the last, and the depth."""

    first: Branch
    last: Branch
    level: int

    @property
    def label(self) -> str:
        return self.first.label + (until(self.first.step, self.last.step) if self.last is not self.first else "")

    @property
    def key(self) -> str:
        """Return the start of the comments above the node's code."""
        return f"{self.first.spec}: {self.first.kernel or self.first.step}"


def page_html(page: Page) -> str:
    """Return the page as HTML."""
    template = Template(files("morello.report").joinpath("page.html").read_text(encoding="utf-8"))
    steps = steps_html(page.steps, page.kernels[0].explanation.target)
    links = "".join(
        f'<li><a href="#k{number}">{escape(one.explanation.name)}</a> '
        f"<span>{escape(cost_words(one.explanation.tree.cost, one.explanation.target))}</span></li>"
        for number, one in enumerate(page.kernels, 1)
    )
    nav = f'<nav aria-label="Kernels"><ul>{links}</ul></nav>' if len(page.kernels) > 1 and not page.steps else ""
    callers = defaultdict[int, list[str]](list)
    for number, step in enumerate(page.steps, 1):
        callers[step.kernel].append(f'<a href="#s{number}">{number}</a>')
    kernels = "\n".join(
        _kernel(f"k{number}", one, ", ".join(callers[number])) for number, one in enumerate(page.kernels, 1)
    )
    return template.substitute(title=escape(page.title), nav=nav, steps=steps, kernels=kernels)


def tree_rows(branch: Branch, level: int = 1) -> Iterator[TreeRow]:
    """Yield the rows of a program, outermost first."""
    last = last_merged(branch)
    yield TreeRow(branch, last, level)
    for child in last.children:
        yield from tree_rows(child, level + 1)


def lines_of(rows: Sequence[TreeRow], program: Program) -> list[list[int]]:
    """Return the lines of C, from 1, of each node and the nodes below, found by the emitter's comments.

    Nodes with the same Spec and step have as many comments each, in the order of the tree. They share their lines where
    one function is printed for all, and in parallel programs, whose functions have another order. Those without a
    comment, such as unrolled copies, have the lines of the node above.
    """
    keys = "|".join(map(re.escape, sorted({one.key for one in rows}, key=len, reverse=True)))
    # After the step: the last of merged loops, a boundary, unrolled or jammed copies.
    comment = re.compile(rf"/\* ({keys})(?: to .*| \(boundary\).*|, .*)? \*/")
    printed, open_ = defaultdict[str, list[set[int]]](list), list[tuple[int, set[int]]]()
    for number, line in enumerate(program.source.splitlines(), 1):
        indent, started = len(line) - len(line.lstrip()), comment.fullmatch(line.lstrip())
        while open_ and line and line[0] != "#" and open_[-1][0] >= indent + (not started):
            open_.pop()
        if started:
            open_.append((indent, set()))
            printed[started[1]].append(open_[-1][1])
        if open_:
            open_[-1][1].add(number)
    alike, found = Counter(one.key for one in rows), list[set[int]]()
    for one in rows:
        texts, count = printed[one.key], alike[one.key]
        # Those of the first node are removed, so that the next node has the next ones.
        each = len(texts) // count if not program.parallel and len(texts) % count == 0 else 0
        found.append(set().union(*(texts[:each] if each else texts)))
        del texts[:each]
        alike[one.key] -= each > 0
    above = [next((up for up in range(at)[::-1] if rows[up].level < one.level), 0) for at, one in enumerate(rows)]
    for at in reversed(range(len(rows))):
        found[above[at]] |= found[at]
    for at, up in enumerate(above):
        found[at] = found[at] or found[up]
    return [sorted(one) for one in found]


def _kernel(key: str, one: KernelPage, callers: str) -> str:
    explained, target = one.explanation, one.explanation.target
    spec = explained.spec.logical
    facts = {
        "Target": target.label,
        "Cost": cost_words(explained.tree.cost, target),
        "Proof": one.proof,
        "Bottleneck": str(explained.balance).partition(":")[0],
        "Peak memory": memory(explained.tree.peak),
    }
    cards = "".join(f"<div><dt>{name}</dt><dd>{escape(text)}</dd></div>" for name, text in facts.items())
    notes = escape(spec.implied), f"Steps that call it: {callers}." if callers else ""
    about = "".join(f"<p>{note}</p>" for note in notes if note)
    return f"""<section class="kernel" id="{key}" aria-labelledby="{key}-name">
<h2 id="{key}-name">{escape(explained.name)}</h2>
<p class="spec"><code>{escape(explained.signature.text(spec))}</code></p>{about}
<dl class="facts">{cards}</dl>
{_program(key, one)}
<div class="cards">
<section><h3>Where the cost goes</h3>{_balance(explained)}</section>
<section><h3>Proof</h3>{_proof(one)}</section>
<section><h3>Roofline</h3>{_roofline(one)}</section>
<section><h3>Operands in memory</h3>{_operands(one)}</section>
</div>
</section>"""


def _program(key: str, one: KernelPage) -> str:
    rows, name = [*tree_rows(one.explanation.shown)], escape(one.explanation.name)
    found = lines_of(rows, one.program)
    body = "\n".join(_row(key, row, lines) for row, lines in zip(rows, found, strict=True))
    foot = "".join(f"<p>{escape(line)}</p>" for line in one.explanation.foot)
    coloured = highlight(one.program.source, CLexer(stripnl=False), HtmlFormatter(nowrap=True))
    lines = _PLAIN.sub(r"\1", coloured).splitlines()
    code = "\n".join(f'<span id="{key}-{number}">{line}</span>' for number, line in enumerate(lines, 1))
    return f"""<div class="pair">
<section><h3>Program</h3>
<div class="pane"><table class="tree" aria-label="Program of {name}">
<thead><tr><th scope="col">node and Spec</th><th scope="col" class="n">cost</th><th scope="col" class="n">runs</th>
<th scope="col" class="n">share</th><th scope="col">holds</th><th scope="col">peak</th></tr></thead><tbody>
{body}
</tbody></table></div>{foot}</section>
<section><h3>C <span class="chosen" role="status"></span></h3>
<pre class="pane" tabindex="0" role="region" aria-label="C of {name}"><code>{code}</code></pre></section>
</div>"""


def _row(key: str, row: TreeRow, lines: Sequence[int]) -> str:
    node = row.first
    ups = "".join(
        f'<small class="or">or {escape(up.step)}: {escape(up.cost_text)}, {escape(up.more_text)}</small>'
        for up in node.runner_ups or ()
    )
    style = ' class="kernel-call"' if node.kernel else ""
    share = f'{node.share:.1f} %<i style="width:{node.share:.1f}%"></i>' if node.own else "–"
    href = f' href="#{key}-{lines[0]}"' if lines else ""
    holds, peak = (memory(one).replace(", ", "\n") for one in (node.holds, node.peak))
    cells = (f"{node.cost:,}", f"{node.runs:,}", share, holds, peak)
    return (
        f'<tr data-level="{row.level}" data-lines="{_ranges(lines)}"><th scope="row" style="--level:{row.level - 1}">'
        f"<a{style}{href}>{escape(row.label)}</a><small>{escape(node.spec)}</small>{ups}</th>"
        f"{''.join(map(_cell, cells))}</tr>"
    )


def _ranges(lines: Sequence[int]) -> str:
    """Return ascending numbers as text: `3-5,9-9`."""
    known = {*lines}
    starts, ends = ([one for one in lines if one + step not in known] for step in (-1, 1))
    return ",".join(f"{first}-{last}" for first, last in zip(starts, ends, strict=True))


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of HTML cells; the first of each row is its head."""
    numbers = [False, *(one[:1].isdigit() for one in rows[0][1:])]
    head = "".join(
        f'<th scope="col"{" class=n" * number}>{one}</th>' for one, number in zip(heads, numbers, strict=True)
    )
    body = "".join(f'<tr><th scope="row">{first}</th>{"".join(map(_cell, rest))}</tr>' for first, *rest in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(text: str) -> str:
    return f"<td{' class=n' if text[:1].isdigit() else ''}>{text}</td>"


def _balance(explained: Explanation) -> str:
    rows = [
        (escape(part), f"{share:.1f} %", f'<i style="width:{share:.1f}%"></i>')
        for part, share in explained.balance.shares.items()
    ]
    words = "Computing, and the traffic of each level of memory, in percent of the cost."
    return f'<p>{words}</p><div class="bars">{_table(["part", "share", "of the cost"], rows)}</div>'


def _proof(one: KernelPage) -> str:
    explained = one.explanation
    among = explained.among or "programs of the space"
    if not explained.space or explained.low <= 1:
        words = f"{one.proof[:1].upper()}{one.proof[1:]}."
    elif explained.low >= explained.tree.cost:
        words = f"Optimal: none of the {among} costs less than {explained.tree.cost:,}."
    else:
        words = (
            f"This program costs {explained.tree.cost:,}, none of the {among} less than {explained.low:,}: {one.proof}."
        )
    facts = {
        "Lower bound": f"{explained.low:,}",
        "Restrictions": explained.among,
        "Space": explained.space,
        "Origin": explained.origin,
    }
    listed = "".join(f"<dt>{name}</dt><dd>{escape(text)}</dd>" for name, text in facts.items() if text)
    return f"<p>{escape(words)}</p><dl>{listed}</dl>"


def _roofline(one: KernelPage) -> str:
    if one.roof is None:
        return "<p>The program has no arithmetic.</p>"
    roof = one.roof
    rows = [
        (str(number), escape(at.name), escape(at.level), _figure(at.intensity), _figure(at.rate * roof.scale))
        for number, at in enumerate(roof.points, 1)
    ]
    heads = ["point", "part", "level", "FLOP per byte", escape(roof.unit)]
    words = "Lines are the bandwidth of each level up to the fastest kernel; circles are kernels, squares other parts."
    return f"<p>{words}</p>{roofline_svg(roof)}{_table(heads, rows)}"


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def _operands(one: KernelPage) -> str:
    logical = one.explanation.spec.logical
    shown: list[str] = []
    for parameter, declared in zip(of_operands(one.program.parameters), logical.declared, strict=True):
        tensor = parameter.tensor
        dims = [
            " + ".join(logical.dims[dim] if c == 1 else f"{c}·{logical.dims[dim]}" for dim, c in terms) or "1"
            for terms in declared.dims
        ]
        access = " and ".join(["read"] * declared.reads + ["written"] * declared.writes)
        rows = [tuple(map(escape, cells)) for cells in order_in_memory(tensor, dims)]
        table = _table(["dimension", "extent", "distance"], rows) if rows else ""
        shown.append(
            f"<figure>{layout_svg(tensor, dims)}<figcaption><b>{escape(parameter.name)}</b>, {access}: "
            f"<code>{escape(str(tensor))}</code></figcaption>{table}</figure>"
        )
    return f'<p>Dimensions are listed slowest first.</p><div class="operands">{"".join(shown)}</div>'
