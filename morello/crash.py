"""Report unexpected exceptions: a message, and a file with everything needed to find the fault.

Code adds facts on its work with `context`; the code that ends the program, such as the command line, calls `format`.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
import shlex
import sys
import sysconfig
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TypeAlias

from morello.errors import MorelloError
from morello.paths import crash_folder, make_private

#: The exit status of a program with an internal error: EX_SOFTWARE of sysexits.h.
EXIT = 70
#: A text, or a function that returns it when needed.
Fact: TypeAlias = str | Callable[[], object]

#: The most frames of a traceback that are reported, innermost first.
_FRAMES = 1000
_FACTS = "_morello_facts"
_PACKAGE = Path(__file__).parent


@contextmanager
def context(**facts: Fact) -> Iterator[None]:
    """Attach `facts` to an unexpected exception that leaves the block; inner ones take precedence."""
    try:
        yield
    except Exception as error:
        if not isinstance(error, MorelloError):
            known = _facts(error)
            known.update({name: _text(fact) for name, fact in facts.items() if name not in known})
        raise


def format(error: BaseException, **facts: Fact) -> str:
    """Write the report of an exception to a file; return the message for the user."""
    what, text = _headline(error), report(error, **facts)
    path, fault = _written(text, type(error).__name__)
    lines = [f"error: {what}"]
    if isinstance(error, RecursionError):
        lines.append("  this is a bug of Morello: the input is nested too deeply")
    else:
        lines.append("  this is a bug of Morello, whatever the input")
    if path:
        lines += [f"  the report is in {path}", "  hint: report it with that file"]
    else:
        lines.append(f"  the report cannot be saved ({fault})")
        lines.append("  hint: report it with this message, the command and its files")
    return "\n".join(lines)


def kind(error: BaseException) -> str:
    """Return the exception's type and the innermost place in Morello or a plugin."""
    frames = traceback.extract_tb(error.__traceback__, limit=-_FRAMES)
    if not frames:
        return type(error).__name__
    own = [frame for frame in frames if not _in_library(Path(frame.filename))]
    last = (own or frames)[-1]
    path = Path(last.filename)
    place = path.relative_to(_PACKAGE.parent) if path.is_relative_to(_PACKAGE) else path.name
    return f"{type(error).__name__} at {place}:{last.lineno}"


def _in_library(path: Path) -> bool:
    """Return True for a source of Python or of an installed package whose name does not begin with morello."""
    libraries = [Path(sysconfig.get_path(name)) for name in ("stdlib", "purelib", "platlib")]
    inside = any(path.is_relative_to(one) for one in libraries) or path.name.startswith("<")
    return inside and not any(part.startswith("morello") for part in path.parts)


def save(error: BaseException, **facts: Fact) -> Path | None:
    """Write the bundle of an exception; return its path, None if no place could be written to."""
    return _written(report(error, **facts), type(error).__name__)[0]


def report(error: BaseException, **facts: Fact) -> str:
    """Return the report of a fault: facts, versions, environment and traceback."""
    variables = sorted((name, value) for name, value in os.environ.items() if name.startswith("MORELLO_"))
    # Reports must not contain secrets.
    environment = [f"{name}={'***' if name.endswith('_KEY') else value}" for name, value in variables]
    sections = {
        "fault": _headline(error),
        "command": shlex.join([sys.executable, *sys.argv]),
        **_facts(error),
        **{name: _text(fact) for name, fact in facts.items() if name not in _facts(error)},
        "versions": _text(_versions),
        "environment": "\n".join(environment) or "nothing of Morello's is set",
        "traceback": _text(lambda: "".join(traceback.format_exception(error, limit=-_FRAMES))),
    }
    return "\n".join(f"== {name.replace('_', ' ')}\n\n{text.rstrip()}\n" for name, text in sections.items())


def _facts(error: BaseException) -> dict[str, str]:
    return error.__dict__.setdefault(_FACTS, {})


def _text(fact: Fact) -> str:
    """Return a fact's text. A fact that raises must not hide the others."""
    if isinstance(fact, str):
        return fact
    try:
        return str(fact())
    except Exception as error:
        return f"unavailable: {type(error).__name__}: {error}"


def _headline(error: BaseException) -> str:
    said = _text(lambda: str(error)).strip().splitlines()
    return f"{kind(error)}: {said[0][:200]}" if said else kind(error)


def _versions() -> str:
    from morello.build.toolchain import find_compiler
    from morello.plugins.registry import installed

    lines = [f"{name} {importlib.metadata.version(name)}" for name in ("morello", "numpy", "cffi")]
    lines.append(f"python {sys.version.split()[0]} on {platform.platform()}")
    lines.append(_text(lambda: f"plugins: {', '.join(map(str, installed().plugins)) or 'none'}"))
    lines.append(_text(lambda: f"compiler: {find_compiler()}"))
    return "\n".join(lines)


def _written(text: str, name: str) -> tuple[Path | None, str]:
    """Write a bundle to the first place that takes it; return its path, or why the last place did not.

    The same fault has the same name, so that repeating it fills no disk.
    """
    file = f"morello-crash-{name}-{hashlib.sha256(text.encode(errors='replace')).hexdigest()[:10]}.txt"
    places: tuple[Callable[[], Path], ...] = (
        crash_folder,
        Path.cwd,
        lambda: Path(tempfile.mkdtemp(prefix="morello-crash-")),
    )
    fault = ""
    for place in places:
        path = None
        try:
            path = place() / file
            make_private(path.parent)
            if not path.is_file():
                _create(path, text)
            return path, ""
        except OSError as error:
            fault = f"{path.parent if path else 'a temporary directory'}: {error.strerror or error}"
    return None, fault


def _create(path: Path, text: str) -> None:
    """Write a new file, whole or not at all."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)
    except OSError:
        with suppress(OSError):
            path.unlink()
        raise
