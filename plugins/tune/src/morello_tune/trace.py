"""Traces: a line of JSON for each result, written at once, so that measurements outlive the process."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from morello.errors import MorelloError
from morello.run.paired import Paired

#: The fields that must be equal for times of one trace to be used by another run.
_SAME = ("spec", "target", "profile", "cpu", "compiler", "threads", "metric")


@attrs.define
class Trace:
    """Appends events to a file, or to none. `known` are times of programs against their parents, by keys of both."""

    path: Path | None = None
    known: dict[tuple[str, str], Paired] = attrs.field(factory=dict[tuple[str, str], Paired])
    _torn: bool = False

    @classmethod
    def open(cls, path: str | os.PathLike[str] | None, task: Mapping[str, Any]) -> Trace:
        """Return the trace in a file, which continues one of the same task on the same kind of machine.

        Raises MorelloError for a file that cannot be used, or is of another task.
        """
        if path is None:
            return cls()
        try:
            with Path(path).open("a+", encoding="utf-8") as file:
                file.seek(0)
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
            raise MorelloError(f"cannot write the trace {path}: {reason}", "give another path with --trace") from error
        # A process that was killed may leave a part of its last line.
        made = cls(Path(path))
        made._torn = bool(text) and not text.endswith("\n")
        events = [event for one in text.splitlines() if (event := _event(one)) is not None]
        if text.strip() and not events:
            raise MorelloError(f"{path} is not a trace", "give another path with --trace, or remove it")
        for event in events:
            if event["event"] == "start":
                for name in _SAME:
                    if (other := event.get(name)) != task.get(name):
                        rule = f"{path} is the trace of another task: its {name} is {other!r}, not {task.get(name)!r}"
                        raise MorelloError(rule, "give another path with --trace")
            elif event["event"] == "sample" and len(times := event.get("paired") or ()) == len(attrs.fields(Paired)):
                made.known[event["parent"], event["key"]] = Paired(*map(float, times))
        return made

    def write(self, event: str, **fields: Any) -> None:
        """Append an event."""
        if self.path is None:
            return
        line = json.dumps({"event": event, **fields}, ensure_ascii=False)
        try:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"{chr(10) * self._torn}{line}\n")
        except OSError as error:
            rule = f"cannot write the trace {self.path}: {error.strerror or error}"
            raise MorelloError(rule, "make room, and go on with the same --trace") from error
        self._torn = False


def _event(line: str) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None
