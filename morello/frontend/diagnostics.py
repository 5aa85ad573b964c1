"""Errors in source text: place, line with a caret under it, and hint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeAlias

import attrs

from morello.errors import MorelloError, PluginError

#: Start and end offsets of a part of the text.
Span: TypeAlias = tuple[int, int]

_MAX_LINE = 120
_MAX_MESSAGE = 600
_MAX_WORD = 40


class SourceError(MorelloError):
    """An error at a place in a source text; lines and columns count from 1.

    `excerpt` is the offending line, or the part of it around the error, and `caret` the marks under it.
    """

    def __init__(
        self, message: str, hint: str | None, *, filename: str, line: int, column: int, excerpt: str, caret: str
    ):
        super().__init__(message, hint)
        self.filename = filename
        self.line = line
        self.column = column
        self.excerpt = excerpt
        self.caret = caret

    def __str__(self) -> str:
        shown = [f"{self.filename}:{self.line}:{self.column}: error: {self.message}", self.excerpt, self.caret]
        return "\n".join([*shown, f"  hint: {self.hint}"] if self.hint else shown)


def _text(text: str) -> str:
    return text.removeprefix("\ufeff")


@attrs.frozen
class Source:
    """A text, where it comes from, and the sizes that it names. A byte order mark is not part of the text."""

    filename: str
    text: str = attrs.field(converter=_text)
    sizes: Mapping[str, int] = attrs.field(factory=dict[str, int], eq=False)

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and column of an offset, both from 1."""
        return self.text.count("\n", 0, offset) + 1, offset - self.text.rfind("\n", 0, offset)

    def error(self, span: Span, message: str, hint: str | None = None) -> SourceError:
        """Return an error at `span`."""
        line, column = self.position(span[0])
        start = span[0] - column + 1
        end = self.text.find("\n", start)
        whole = self.text[start : len(self.text) if end < 0 else end].removesuffix("\r")
        excerpt, caret = _excerpt(whole, column - 1, span[1] - span[0])
        return SourceError(
            _clip(message),
            hint and _clip(hint),
            filename=self.filename,
            line=line,
            column=column,
            excerpt=excerpt,
            caret=caret,
        )

    @contextmanager
    def at(self, span: Span) -> Iterator[None]:
        """Give errors raised inside this place, unless they have one or are a plugin's fault."""
        try:
            yield
        except (SourceError, PluginError):
            raise
        except MorelloError as error:
            raise self.error(span, error.message, error.hint) from error


@contextmanager
def advising(advice: str) -> Iterator[None]:
    """Append advice, if not empty, to the hint of a SourceError raised inside."""
    try:
        yield
    except SourceError as error:
        error.hint = "; ".join(part for part in (error.hint, advice) if part) or None
        raise


def _excerpt(line: str, column: int, length: int) -> tuple[str, str]:
    """Return the part of a line around a column, printable, and the marks under `length` characters from there."""
    start = max(0, column - _MAX_LINE // 2) if len(line) > _MAX_LINE else 0
    shown = line[start : start + _MAX_LINE]
    marks = max(1, min(length, len(shown) - (column - start)))
    before, after = "…" if start else "", "…" if start + len(shown) < len(line) else ""
    text = "".join(char if char.isprintable() or char == "\t" else "�" for char in shown)
    padding = "".join("\t" if char == "\t" else " " for char in before + text[: column - start])
    return before + text + after, padding + "^" + "~" * (marks - 1)


def _clip(message: str) -> str:
    return message if len(message) <= _MAX_MESSAGE else f"{message[:_MAX_MESSAGE]}…"


def quoted(word: str) -> str:
    """Return a word of the text, quoted and shortened for messages."""
    return repr(str(word) if len(word) <= _MAX_WORD else f"{word[:_MAX_WORD]}…")
