"""Readers of files, JSON and TOML from elsewhere, with limits on size, nesting and the digits of numbers."""

from __future__ import annotations

import json
import math
import sys
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import IO, Any, NoReturn

from morello.errors import MorelloError

#: Far beyond any file written by hand; keeps `/dev/zero` and the like from filling the memory.
MAX_FILE_BYTES = 64 * 2**20
#: The most bytes of a file that is read line by line; a line has at most those of a file.
MAX_LINES_BYTES = 2**30
_MOST_DIGITS, _MOST_DEPTH, _MOST_TOML = 100, 50, 1 << 20
_TOO_DEEP = f"it is nested deeper than {_MOST_DEPTH} levels"


def read_file(path: str | Path | Traversable, remedy: str | None = None) -> str:
    """Return the text of a file, `-` being standard input.

    Raises MorelloError if it is not readable, too large, or not UTF-8; `remedy` is the hint for the last two.
    """
    with _opened(path) as file:
        data = file.read(MAX_FILE_BYTES + 1)
    if len(data) > MAX_FILE_BYTES:
        hint = remedy or "put its Specs into several files"
        raise MorelloError(f"cannot read {path}: it is larger than {MAX_FILE_BYTES >> 20} MiB", hint)
    if b"\0" in data:
        rule = f"{path} is not a text file: it has a NUL byte at offset {data.index(0)}"
        raise MorelloError(rule, remedy or "Spec files are UTF-8 text")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        rule = f"{path} is not UTF-8: byte 0x{data[error.start]:02x} at offset {error.start}"
        raise MorelloError(rule, remedy or "save it as UTF-8") from error


def read_lines(path: str | Path, remedy: str) -> Iterator[str]:
    """Yield the lines of a file, with their ends. Only `\\n` ends a line. Raises MorelloError as `read_file` does."""
    left = MAX_LINES_BYTES
    with _opened(path) as file:
        for number, line in enumerate(iter(lambda: file.readline(MAX_FILE_BYTES + 1), b""), 1):
            left -= len(line)
            if len(line) > MAX_FILE_BYTES or left < 0:
                rule = f"a line has more than {MAX_FILE_BYTES >> 20} MiB, or all have more than {MAX_LINES_BYTES >> 20}"
                raise MorelloError(f"{path}:{number}: {rule}", remedy)
            try:
                yield line.decode("utf-8")
            except UnicodeDecodeError as error:
                raise MorelloError(f"{path}:{number}: not UTF-8", remedy) from error


@contextmanager
def _opened(path: str | Path | Traversable) -> Iterator[IO[bytes]]:
    hint = "give the path of a file that you may read"
    try:
        source = Path(path) if isinstance(path, str) else path
        # Leave standard input open.
        with nullcontext(sys.stdin.buffer) if str(path) == "-" else source.open("rb") as file:
            yield file
    except OSError as error:
        raise MorelloError(f"cannot read {path}: {error.strerror or error}", hint) from error
    except ValueError as error:
        raise MorelloError(f"cannot read {path!r}: {error}", hint) from error


def parse_json(text: str) -> Any:
    """Return the value of a JSON text.

    Raises ValueError for other texts, for NaN and infinite numbers, and beyond the limits of nesting and of digits.
    """
    try:
        value = _JSON.decode(text)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error
    level = [value]
    for _ in range(_MOST_DEPTH):
        level = [
            part
            for one in level
            if isinstance(one, (list, dict))
            for part in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return value
    raise ValueError(_TOO_DEEP)


def parse_toml(text: str) -> dict[str, Any]:
    """Return the values of a TOML text. Raises ValueError for other texts, and for large or deep ones."""
    if len(text) > _MOST_TOML:
        raise ValueError(f"it has more than {_MOST_TOML >> 10} KiB")
    # The work grows with the square of the parts of a key.
    if any(line.count(".") >= _MOST_DEPTH for line in text.splitlines()):
        raise ValueError(_TOO_DEEP)
    try:
        return tomllib.loads(text)
    except RecursionError as error:
        raise ValueError(_TOO_DEEP) from error


def _int(text: str) -> int:
    if len(text) > _MOST_DIGITS:
        raise ValueError(f"a number has {len(text):,} digits, more than {_MOST_DIGITS}")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    return value if math.isfinite(value) else _constant(text[:20])


def _constant(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a finite number")


_JSON = json.JSONDecoder(parse_int=_int, parse_float=_float, parse_constant=_constant)
