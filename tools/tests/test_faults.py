"""Every failing call and every loss of power of small work is harmless; what would be harm is found."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from tools.faults.power import Disk, Event

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        sys.platform != "linux" or platform.libc_ver()[0] != "glibc", reason="faults are injected on Linux with glibc"
    ),
]

#: What every program here begins with: the library loaded, and nothing printed yet.
_BEGIN = """
import sqlite3
from contextlib import contextmanager, nullcontext
from tools.faults import calls, power, shim, works
loaded = shim.load()
from morello.db import file
from morello.build import cache
from tools.faults.shim import Fault
"""


def run(program: str) -> str:
    """Run a program that injects faults in a process of its own; return what it prints."""
    done = subprocess.run([sys.executable, "-c", _BEGIN + program], capture_output=True, text=True, timeout=300)
    assert done.returncode in {0, 1}, done.stderr
    assert not done.stderr, done.stderr
    return done.stdout


@pytest.mark.parametrize("work", ["ShortDatabase", "Cache"])
def test_every_call_on_a_file_may_fail(work: str) -> None:
    said = run(f"""
for what in (Fault.EIO, Fault.ENOSPC, Fault.SHORT):
    calls.sweep(loaded, works.{work}, what, every=12).print(what.name)
""")
    lines = said.splitlines()
    assert [line.split()[0] for line in lines] == ["EIO", "ENOSPC", "SHORT"], said
    assert "refused" in lines[0]
    assert "refused" in lines[1]
    # Half a read or write is no error, and whoever asked for it goes on with the other half.
    assert "refused" not in lines[2]
    assert "right" in lines[2]


def test_memory_may_run_out() -> None:
    said = run("""
calls.sweep(loaded, works.ShortDatabase, Fault.ENOMEM, every=700).print("ENOMEM")
""")
    assert "no memory" in said
    assert "\n" not in said.strip(), said


@pytest.mark.parametrize("work", ["ShortDatabase", "Cache"])
def test_power_may_be_lost(work: str) -> None:
    said = run(f"print(power.main(loaded, [works.{work}], every=5))")
    assert said.splitlines()[-1] == "True", said
    assert "right" in said


@pytest.mark.parametrize(
    ("broken", "injected", "words"),
    [
        pytest.param(
            """
whole = file._prepared
def prepared(path, options=""):
    connection = whole(path, options)
    connection.execute("PRAGMA synchronous = OFF")
    return connection
file._prepared = prepared
""",
            "power.main(loaded, [works.ShortDatabase], every=5)",
            "lost",
            id="not synced",
        ),
        pytest.param(
            """
@contextmanager
def writing(self):
    with self.messages():
        yield self.connection
file.DatabaseFile.writing = writing
""",
            "calls.main(loaded, [works.ShortDatabase], [Fault.ENOSPC], every=9)",
            "is damaged|in part",
            id="several transactions",
        ),
        pytest.param(
            """
cache.is_intact = lambda library: True
cache.os.fsync = lambda file: None
""",
            "power.main(loaded, [works.Cache])",
            "killed by SIGBUS|cannot be loaded|killed by",
            id="half a library",
        ),
        pytest.param(
            """
file.DatabaseFile.messages = lambda store: nullcontext()
""",
            "calls.main(loaded, [works.ShortDatabase], [Fault.EIO], every=40)",
            "OperationalError",
            id="an error that is no message",
        ),
    ],
)
def test_harm_is_found(broken: str, injected: str, words: str) -> None:
    said = run(f"{broken}\nprint({injected})")
    assert said.splitlines()[-1] == "False", said
    assert any(word in said for word in words.split("|")), said


def test_a_disk_keeps_what_was_synced() -> None:
    disk = Disk("/d")
    for event in (
        Event("n", "/d/a", 1, 0, b""),
        Event("w", "/d/a", 1, 0, b"x" * 512),
        Event("s", "/d/a", 1, 0, b""),
        Event("s", "/d", 9, 0, b""),
        Event("w", "/d/a", 1, 512, b"y" * 1024),
        Event("r", "/d/a\n/d/b", 1, 0, b""),
    ):
        disk.apply(event)
    found = [*disk.states(1)]
    contents = {data for state in found for data in state.values()}
    assert {name for state in found for name in state} == {"/a", "/b"}
    assert all(data and data.startswith(b"x" * 512) for data in contents)
    assert {b"x" * 512, b"x" * 512 + b"y" * 1024, b"x" * 512 + b"y" * 512 + bytes(512)} <= contents
    assert all(len(state) == 1 for state in found)
