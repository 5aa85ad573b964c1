"""Names that C code cannot define as functions or variables."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from morello.errors import EmitError

#: The longest name of a function: files are named after it, and its macros add to it.
LONGEST = 100


def _lists() -> Iterator[frozenset[str]]:
    """Yield the lists of reserved.txt."""
    for part in Path(__file__).with_name("reserved.txt").read_text("utf-8").split(":\n")[1:]:
        yield frozenset(part.rpartition("\n\n")[0].split() if "\n\n" in part else part.split())


#: Words of C11, C23, GNU C and, as it reads the headers, C++; macros of compilers and of headers that emitted C
#: includes; names of the C library; its and POSIX's headers, without `.h`.
KEYWORDS, MACROS, LIBRARY, HEADERS = _lists()

#: Functions that emitted code calls, which no variable may hide.
_CALLED = frozenset("abs main memcpy memset".split())
_TAKEN = ("_", "morello_", "MORELLO_", "pthread_", "PTHREAD_", "SYS_")


def fault(name: str) -> tuple[str, str] | None:
    """Return the reason why C code cannot define a function of that name, and a remedy; None if it can."""
    if not (name.isascii() and name.isidentifier()):
        return "is not a name in C", "use ASCII letters, digits and _"
    if len(name) > LONGEST:
        return f"is longer than {LONGEST} letters", "shorten it"
    remedy = f"rename it, for instance to my_{name.lstrip('_').removesuffix('_t')}"
    if name in KEYWORDS:
        return "is a word of C or C++", remedy
    if name in MACROS:
        return "is a macro of C compilers or headers", remedy
    if name in LIBRARY:
        return "is in the C library", remedy
    if name.endswith("_t"):
        return "ends like a type of the C library", remedy
    if taken := next((prefix for prefix in _TAKEN if name.startswith(prefix)), None):
        return f"starts with {taken}, as names of C compilers and of Morello do", remedy
    return None


def check_name(name: str) -> None:
    """Raise EmitError if C code cannot define a function of that name."""
    if refused := fault(name):
        raise EmitError(f"{name[:LONGEST]!r} cannot name a C function: it {refused[0]}", refused[1])


def spelled(name: str) -> str:
    """Return a name of the Spec language in letters of C, without reserved prefixes."""
    text = "".join(one if one.isascii() else f"u{ord(one):04x}" for one in name)
    return f"my_{text.lstrip('_')}" if text.startswith(_TAKEN) else text


def hides(name: str) -> bool:
    """Return True if C rejects a variable of that name, or it hides a name that emitted code uses."""
    return name in KEYWORDS or name in MACROS or name in _CALLED or name.endswith("_t")
