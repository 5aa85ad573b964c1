"""Lines of C with indentation, and names that do not clash."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

from morello.codegen.reserved import hides

#: Comments and strings of C.
_UNCODED = re.compile(r'/\*.*?\*/|"[^"\n]*"', re.DOTALL)
_NAME = re.compile(r"\b[A-Za-z_]\w*")
#: A name that is read: not the target of an assignment.
_USED = re.compile(r"\b[A-Za-z_]\w*\b(?! = )")


class Names:
    """Generates unique identifiers by numbering those that are taken."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        #: All names returned so far.
        self.handed_out: set[str] = set()

    def fresh(self, wanted: str, endings: Sequence[str] = ()) -> str:
        """Return and take a free name like `wanted`, free also with each of `endings`."""
        name, count = wanted, 1
        while any(one in self._taken or hides(one) for one in (name, *(name + end for end in endings))):
            count += 1
            name = f"{wanted}_{count}" if wanted[-1].isdigit() else f"{wanted}{count}"
        self._taken.update((name, *(name + end for end in endings)))
        self.handed_out.update((name, *(name + end for end in endings)))
        return name

    @contextmanager
    def scope(self) -> Generator[None]:
        """Free the names taken in the context at its end."""
        taken = set(self._taken)
        yield
        self._taken = taken


def names_in(code: str) -> set[str]:
    """Return the identifiers and keywords in C, without those in comments and strings."""
    return {*_NAME.findall(_UNCODED.sub(" ", code))}


class CWriter:
    """Collects lines of C."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def line(self, text: str = "") -> None:
        self._lines.append("    " * self._depth + text if text else "")

    @contextmanager
    def block(self, head: str = "", end: str = "") -> Generator[None]:
        """Put lines written in the context into braces, after `head` and before `end`."""
        self.line(f"{head} {{".lstrip())
        self._depth += 1
        yield
        self._depth -= 1
        self.line(f"}}{end}")

    @contextmanager
    def variables(self, names: Iterable[str]) -> Generator[None]:
        """Mark those variables as used that the lines written in the context never read."""
        first = len(self._lines)
        yield
        used = {name for line in self._lines[first:] for name in _USED.findall(line)}
        for name in names:
            if name not in used:
                self.line(f"(void){name};")

    @contextmanager
    def around(self, statements: Iterable[tuple[str, str]]) -> Generator[None]:
        """Put pairs of statements around the lines written in the context, the first pair outermost."""
        pairs = [*statements]
        for first, _ in pairs:
            self.line(first)
        yield
        for _, last in reversed(pairs):
            self.line(last)

    def add(self, other: CWriter) -> None:
        """Add the lines of another writer, at the depth of this one."""
        for line in other.text().splitlines():
            self.line(line)

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"
