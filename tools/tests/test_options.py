"""Calls reach every option, pass on a sample, and faults of commands are found."""

from __future__ import annotations

import pytest

from morello.cli.app import all_commands
from tools.fuzz import options


def test_calls_reach_every_option_of_every_command() -> None:
    found = {(call.command, name) for call in options.calls() for name in call.tried}
    for name, command in all_commands().items():
        loaded = command.load()
        if name not in ("cache", "db"):
            assert {(name, each.name) for each in loaded.params} <= found


@pytest.mark.slow
def test_a_sample() -> None:
    assert options.run(["--cases", "12"]) == 0


@pytest.mark.slow
def test_exceptions_are_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("morello.api.cache_contents", lambda: {}["missing"])
    assert options.run(["--command", "cache"]) == 1
    assert "KeyError" in capsys.readouterr().out
