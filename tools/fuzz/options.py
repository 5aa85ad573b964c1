"""Calls every command with every option and argument, each with hostile values, and with every pair of options.

    python -m tools.fuzz.options [--command "db stats"] [--first 0] [--cases 100] [--minutes 20]

A call has to end with a result or with one message, and one that fails leaves no file. Each runs in a copy of this
process, in a folder of its own. Exit code 1 if one does otherwise.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import re
import shlex
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path

import attrs
import click
from click.testing import CliRunner

from morello import crash
from morello.cli.app import all_commands, main
from morello.plugins.registry import installed
from tools.children import ending_of

#: Values for every option and argument that takes one.
VALUES = ("", " ", "0", "1", "-1", "1.5", "nan", "1e999", "9" * 40, "x", "∞", "\udce9", "a\nb", "\x1b[31m", "x" * 300)
VALUES += ("/", ".", "/dev/full", "/dev/null", "missing/x", "x.xyz", "x.so", "one.spec", "specs.db", "default")
VALUES += ("-", "--", "1,2", "4GiB", "%s{0}$(x)")
#: Arguments with which a command succeeds quickly, by command, by group, or for all others.
_BASE = {
    "precompute": "FillZero(4,GL) --target reference_c --db specs.db",
    "bench": "one.spec --min-time 0.001",
    "tune": "one.spec --budget 1",
    "calibrate": "--quick --target reference_c",
    "targets": "reference_c",
    "cache": "",
    "db": "specs.db",
}
_ONE = "target reference_c\nspec one = Matmul(1×2×2×2, GL, GL, GL, serial)\n"


@attrs.frozen
class Call:
    """A command, its arguments, and the parameters that are tried."""

    command: str
    arguments: tuple[str, ...]
    tried: tuple[str, ...]

    def __str__(self) -> str:
        return f"morello {self.command} {shlex.join(self.arguments)}"


def calls() -> Iterator[Call]:
    """Yield every call: each parameter with each value, and each pair of options."""
    for name, command in _leaves(main, ""):
        base = tuple(shlex.split(_BASE.get(name, _BASE.get(name.split()[0], "one.spec"))))
        context = click.Context(command)
        parameters = command.get_params(context)
        options = [one for one in parameters if isinstance(one, click.Option) and one.name != "help"]
        for one in parameters:
            # A library in the root folder might succeed.
            values = ("",) if _is_flag(one) else (each for each in VALUES if (one.name, each) != ("directory", "/"))
            for value in values:
                yield Call(name, _given(one, base, value), (str(one.name),))
        for one, other in combinations(options, 2):
            yield Call(name, _given(other, _given(one, base, "1"), "1"), (str(one.name), str(other.name)))


def _leaves(group: click.Group, prefix: str) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command
        if isinstance(command, click.Group):
            yield from _leaves(command, f"{prefix}{name} ")
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield f"{prefix}{name}", command


def _is_flag(one: click.Parameter) -> bool:
    return isinstance(one, click.Option) and one.is_flag


def _given(one: click.Parameter, arguments: tuple[str, ...], value: str) -> tuple[str, ...]:
    """Return arguments with one more option, or another first argument."""
    if isinstance(one, click.Argument):
        return (value, *arguments[1:])
    return (*arguments, one.opts[-1]) if _is_flag(one) else (*arguments, one.opts[-1], value)


def fault_of(call: Call, folder: Path) -> str | None:
    """Make a call in a new folder; return its fault, or None."""
    place = Path(tempfile.mkdtemp(dir=folder))
    shutil.copytree(folder / "start", place, dirs_exist_ok=True)

    ending = ending_of(lambda: _made([*call.command.split(), *call.arguments], folder, place))
    left = {one.name for one in place.iterdir() if not _is_of_database(one)} - {"one.spec"}
    shutil.rmtree(place)
    if ending.died:
        return ending.died
    code, text = ending.result
    if code not in (0, 1, 2) or "Traceback" in text:
        return f"exit code {code}: {text}"
    if code and len(re.findall(r"^(?:\S.*: )?error: ", text, re.MULTILINE)) != 1:
        return f"exit code {code} without one message: {text}"
    kept = {"history", "trace"}.intersection(call.tried)  # logs hold what was done before the failure
    return f"leaves {left}: {text}" if code and left and not kept else None


def _made(arguments: list[str], folder: Path, place: Path) -> tuple[int, str]:
    """Make a call in `place`, with caches in `folder`; return its exit code and messages."""
    os.environ |= {"HOME": str(folder), "MORELLO_CACHE_DIR": str(folder / "cache"), "MORELLO_PROFILE": "base"}
    os.environ |= {"XDG_STATE_HOME": str(folder / "state"), "MORELLO_DB": str(folder / "specs.db")}
    os.chdir(place)
    result = CliRunner().invoke(main, arguments)
    unexpected = result.exception is not None and not isinstance(result.exception, SystemExit)
    return (crash.EXIT, repr(result.exception)) if unexpected else (result.exit_code, result.stderr)


def _is_of_database(path: Path) -> bool:
    return path.name.endswith(("-wal", "-shm")) or (path.is_file() and path.read_bytes()[:6] == b"SQLite")


def run(argv: list[str]) -> int:
    """Run the program; return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz.options")
    parser.add_argument("--command", help="only this command")
    parser.add_argument("--first", type=int, default=0, help="the number of the first call")
    parser.add_argument("--cases", type=int, help="at most this many calls")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no call after this time")
    options = parser.parse_args(argv)
    # In an order by chance, so that the first calls are a sample of all.
    everything = random.Random(0).sample(found := [*calls()], len(found))
    wanted = [(at, one) for at, one in enumerate(everything) if options.command in (None, one.command)]
    wanted = [(at, one) for at, one in wanted if at >= options.first][: options.cases]
    _ = [command.load() for command in all_commands().values()], installed().names
    done = wrong = 0
    end = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        start = folder / "start"
        start.mkdir()
        (start / "one.spec").write_text(_ONE)
        ending = ending_of(lambda: _made(["compile", "one.spec", "--db", "specs.db"], folder, start))
        assert (ending.result or [ending.died])[0] == 0, ending
        for at, call in wanted:
            if time.monotonic() > end:
                break
            done += 1
            if fault := fault_of(call, folder):
                wrong += 1
                print(f"{str(call)!a}\n  {fault}\n  python -m tools.fuzz.options --first {at} --cases 1", flush=True)
    print(f"{done:,} calls, {wrong} wrong")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
