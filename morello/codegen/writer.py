"""Lines of C with indentation, and names that do not clash."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager

from morello.codegen.reserved import hides

#: Comments and strings of C.
_SAID = re.compile(r'/\*.*?\*/|"[^"\n]*"', re.DOTALL)
_NAME = re.compile(r"\b[A-Za-z_]\w*")
#: A name that is not just about to be assigned to.
_USED = re.compile(r"\b[A-Za-z_]\w*\b(?! = )")


class Names:
    """Hands out identifiers, adding a number to one that is taken."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)
        #: All that were ever handed out.
        self.handed_out: set[str] = set()

    def fresh(self, wanted: str, endings: Sequence[str] = ()) -> str:
        """Return a name like `wanted` that is free, as it is and with each of `endings`; all of these are taken now."""
        name, count = wanted, 1
        while any(one in self._taken or hides(one) for one in (name, *(name + end for end in endings))):
            count += 1
            name = f"{wanted}_{count}" if wanted[-1].isdigit() else f"{wanted}{count}"
        self._taken.update((name, *(name + end for end in endings)))
        self.handed_out.update((name, *(name + end for end in endings)))
        return name

    @contextmanager
    def scope(self) -> Generator[None]:
        """Names handed out meanwhile are free again afterwards."""
        taken = set(self._taken)
        yield
        self._taken = taken


def names_in(code: str) -> set[str]:
    """Return the names in C, words of the language among them, but not those in comments and strings."""
    return {*_NAME.findall(_SAID.sub(" ", code))}


class CWriter:
    """Collects lines of C."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._depth = 0

    def line(self, text: str = "") -> None:
        self._lines.append("    " * self._depth + text if text else "")

    @contextmanager
    def block(self, head: str = "", end: str = "") -> Generator[None]:
        """Yield a pair of braces around what is written meanwhile, after `head` and before `end`."""
        self.line(f"{head} {{".lstrip())
        self._depth += 1
        yield
        self._depth -= 1
        self.line(f"}}{end}")

    @contextmanager
    def variables(self, names: Iterable[str]) -> Generator[None]:
        """Declare variables that what is written meanwhile uses, and tell compilers of those that are only set."""
        first = len(self._lines)
        yield
        used = {name for line in self._lines[first:] for name in _USED.findall(line)}
        for name in names:
            if name not in used:
                self.line(f"(void){name};")

    def add(self, other: CWriter) -> None:
        """Add the lines of another writer, at the depth of this one."""
        for line in other.text().splitlines():
            self.line(line)

    def text(self) -> str:
        return "\n".join(self._lines) + "\n"
