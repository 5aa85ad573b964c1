"""Answers of a command, and answers of any model, are read within limits of size and time."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from pathlib import Path

import pytest
from morello_tune.proposers.command import CommandModel
from morello_tune.proposers.language import Unanswered
from morello_tune.proposers.prompts import chosen_item, schedule_in


@pytest.mark.parametrize(
    ("command", "seconds", "rule"),
    [
        ("yes {}", 60.0, "wrote more than 256 KiB"),
        ("yes {} >&2", 0.3, "ran for 0.3 s"),
        ("echo an answer; sleep 50.{} &", 0.3, "ran for 0.3 s"),
        ("echo an answer; yes {} & exit 1", 60.0, "wrote more than 256 KiB"),
        ("setsid sleep 40.{} & echo an answer", 0.3, "ran for 0.3 s"),
    ],
)
def test_output_of_a_command_is_limited_as_it_comes(command: str, seconds: float, rule: str) -> None:
    """Also where a process that it has started holds the pipe."""
    began, mark = time.monotonic(), str(time.time_ns())
    with pytest.raises(Unanswered, match=rule):
        asyncio.run(CommandModel(["sh", "-c", command.format(mark)], seconds).answer("system", ["text"]))
    if "setsid" in command:
        assert time.monotonic() - began < 30
        return
    while any(mark.encode() in _read(one) for one in Path("/proc").glob("[0-9]*/cmdline")):
        assert time.monotonic() - began < 30, "a process is left"
        time.sleep(0.05)


def _read(path: Path) -> bytes:
    with suppress(OSError):
        return path.read_bytes()
    return b""


def test_a_command_may_leave_its_prompt_unread() -> None:
    answer = CommandModel(["sh", "-c", "exec <&-; echo done"], 10.0).answer("system", ["text" * 10**6])
    assert asyncio.run(answer) == "done\n"


@pytest.mark.parametrize(
    "answer",
    ["schedule a{" * 20_000, "schedule a " * 20_000, "```\n" * 60_001, "`" * 200_000, "\n" * 200_000],
    ids=range(5),
)
def test_long_answers_take_no_time(answer: str) -> None:
    began = time.process_time()
    schedule_in(answer)
    assert chosen_item(answer, ()) is None
    assert time.process_time() - began < 2
