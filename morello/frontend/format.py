"""The text of a `.spec` file in its usual form: one declaration or statement a line, with comments kept."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Iterable, Iterator, Sequence

import attrs
from lark import Token

from morello.frontend.diagnostics import Source
from morello.frontend.syntax import span, tokens

WIDTH = 120
_INDENT = " " * 4
#: A long line ends after commas in this many brackets, or fewer.
_BROKEN = 3
_HEADS = {"TARGET", "LET", "SPEC", "SCHEDULE"}
_OPEN, _CLOSE = {"LPAR", "LSQB"}, {"RPAR", "RSQB"}
#: Terminals with no space before them, and after them.
_TIGHT_BEFORE = {"COMMA", "COLON", "TIMES", "RANGE", "_END", *_CLOSE}
_TIGHT_AFTER = {"TIMES", "RANGE", *_OPEN}


@attrs.define
class _Line:
    """A declaration, a statement or a brace, in `depth` blocks; or a comment, which has no tokens."""

    start: int
    end: int
    depth: int
    tokens: Sequence[Token] = ()
    #: The text in place of the tokens, if any.
    text: str = ""
    #: A comment after it.
    tail: str = ""


def format_text(text: str, filename: str = "<text>") -> str:
    """Return the text of a Spec file in its usual form, which parses to an equal file. Raises SourceError.

    A declaration of more than 120 columns is broken after commas; one with a comment inside keeps its line
    breaks. A schedule that is written on one line stays on one. Lines end as in the text, by \\n or \\r\\n.
    """
    source = Source(filename, text)
    written = tokens(source)
    lines = [*_joined([*_lines(written)], source)]
    comments = [*_placed(_comments(source, written), lines, source)]
    out, end = list[str](), 0
    for line in sorted([*lines, *comments], key=lambda one: one.start):
        if out and source.text.count("\n", end, line.start) > 1:
            out.append("")
        usual = line.text or _broken(line.tokens, WIDTH - len(_INDENT) * line.depth)
        usual = usual.replace("\n", f"\n{_INDENT * line.depth}")
        out += f"{_INDENT * line.depth}{usual}{line.tail and f'  {line.tail}'}".split("\n")
        end = line.end
    ends = "\r\n" if "\r\n" in text else "\n"
    return "".join(f"{line.rstrip()}{ends}" for line in out)


def _lines(written: Sequence[Token]) -> Iterator[_Line]:
    """Yield the lines of a file, one for each declaration, statement and closing brace."""
    depth, line = 0, list[Token]()
    for token in written:
        ends = token.type in {"_END", "RBRACE"} or (not depth and token.type in _HEADS)
        if ends and line:
            yield _line(line, depth)
            line = []
        if token.type == "RBRACE":
            depth -= 1
            yield _line([token], depth)
        elif token.type == "LBRACE":
            yield _line([*line, token], depth)
            depth, line = depth + 1, []
        elif token.type != "_END":
            line.append(token)
    if line:
        yield _line(line, depth)


def _line(parts: Sequence[Token], depth: int) -> _Line:
    start, end = span(parts[0], parts[-1])
    return _Line(start, end, depth, parts)


def _joined(lines: Sequence[_Line], source: Source) -> Iterator[_Line]:
    """Yield lines; a block that stands on one line of the text is one."""
    index = 0
    while index < len(lines):
        line, last = lines[index], index
        if line.tokens[-1].type == "LBRACE":
            last = next(i for i, one in enumerate(lines) if i > index and one.depth == line.depth)
            if source.text.find("\n", line.start, lines[last].end) < 0:
                line = _block(lines[index : last + 1])
            else:
                last = index
        yield line
        index = last + 1


def _block(lines: Sequence[_Line]) -> _Line:
    """Return lines with braces as one: `tile [1, 4] { a; b }`."""
    text = "; ".join(_spaced(one.tokens) for one in lines).replace("{; ", "{ ").replace("; }", " }")
    first = lines[0]
    return _Line(first.start, lines[-1].end, first.depth, first.tokens, text)


def _comments(source: Source, written: Sequence[Token]) -> Iterator[re.Match[str]]:
    """Yield the comments, which lie between tokens."""
    comment, start = re.compile(r"#[^\n]*"), 0
    for end, after in [*(span(token) for token in written), (len(source.text),) * 2]:
        yield from comment.finditer(source.text, start, end)
        start = after


def _placed(comments: Iterable[re.Match[str]], lines: Sequence[_Line], source: Source) -> Iterator[_Line]:
    """Yield the comments that have a line of their own, and add others to the lines that they follow.

    A line with a comment inside keeps its text, indented.
    """
    starts = [line.start for line in lines]
    for comment in comments:
        start, text = comment.start(), comment[0].rstrip()
        index = bisect(starts, start)
        line = lines[index - 1] if index else None
        if line and start < line.end:
            line.text = f"\n{_INDENT}".join(map(str.strip, source.text[line.start : line.end].split("\n")))
        elif line and "\n" not in source.text[line.end : start]:
            line.tail = text
        else:
            below = lines[index] if index < len(lines) else None
            depth = below.depth + (below.tokens[0].type == "RBRACE") if below else 0
            yield _Line(start, start + len(text), depth, text=text)


def _broken(parts: Sequence[Token], width: int) -> str:
    """Return a line, broken in as few brackets as make it fit, at most `_BROKEN`."""
    texts = (_spaced(parts, brackets) for brackets in range(_BROKEN + 1))
    return next((text for text in texts if max(map(len, text.split("\n"))) <= width), _spaced(parts, _BROKEN))


def _spaced(parts: Sequence[Token], brackets: int = 0) -> str:
    """Return tokens with the usual spaces, and line breaks after commas in up to `brackets` brackets."""
    out, opened = [str(parts[0])], list[bool]()
    for index, token in enumerate(parts[1:], 1):
        before = parts[index - 1]
        if before.type in _OPEN:
            # Equations stand in square brackets after a round one: a space is around their `=`.
            opened.append(before.type == "LSQB" and index > 1 and parts[index - 2].type == "LPAR")
        elif before.type in _CLOSE:
            opened.pop()
        if before.type == "COMMA" and 0 < len(opened) <= brackets:
            out.append("\n" + _INDENT + " " * (len(opened) - 1))
        elif _space(parts, index, not opened or opened[-1]):
            out.append(" ")
        out.append("×" if token.type == "TIMES" else str(token))
    return "".join(out)


def _space(parts: Sequence[Token], index: int, equations: bool) -> bool:
    """Return True if a space stands before a token."""
    before, token = parts[index - 1], parts[index]
    if token.type in _TIGHT_BEFORE or before.type in _TIGHT_AFTER:
        return False
    if "EQUAL" in (token.type, before.type):
        return equations
    if token.type in _OPEN:
        # In a schedule, lists are arguments of words.
        schedule = parts[0].type not in _HEADS
        return before.type in {"COMMA", "COLON", "USING", "WITHOUT"} or (schedule and before.type == "WORD")
    return True
