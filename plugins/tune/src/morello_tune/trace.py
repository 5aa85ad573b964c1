"""Traces: a line of JSON for each result, written as it comes, so that what was measured outlives the process."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import attrs

from morello.errors import MorelloError
from morello.run.paired import Paired

#: What has to be the same for times of one trace to be used by another run.
_SAME = ("spec", "target", "profile", "cpu", "compiler", "threads", "metric")


@attrs.define
class Trace:
    """Appends events to a file, or to none. `known` are times of programs against their parents, by keys of both."""

    path: Path | None = None
    known: dict[tuple[str, str], Paired] = attrs.field(factory=dict[tuple[str, str], Paired])
    _torn: bool = False

    @classmethod
    def open(cls, path: str | Path | None, task: Mapping[str, Any]) -> Trace:
        """Return the trace in a file, which goes on if it is of the same task, on the same kind of machine.

        Raises MorelloError for a file that cannot be used, or is of another task.
        """
        if path is None:
            return cls()
        made = cls(Path(path))
        text = ""
        try:
            if made.path and made.path.exists():
                text = made.path.read_text(encoding="utf-8")
            with Path(path).open("a", encoding="utf-8"):
                pass
        except (OSError, UnicodeDecodeError) as error:
            what = error.strerror if isinstance(error, OSError) else "it is no UTF-8"
            raise MorelloError(f"cannot write the trace {path}: {what}", "give another path with --trace") from error
        # A process that was killed may leave a part of its last line.
        made._torn = bool(text) and not text.endswith("\n")
        events = [event for line in text.splitlines() if (event := _event(line)) is not None]
        if text.strip() and not events:
            raise MorelloError(f"{path} is no trace", "give another path with --trace, or remove it")
        for event in events:
            made._take(event, task)
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
            what = f"cannot write the trace {self.path}: {error.strerror or error}"
            raise MorelloError(what, "make room, and go on with the same --trace") from error
        self._torn = False

    def _take(self, event: Mapping[str, Any], task: Mapping[str, Any]) -> None:
        if event["event"] == "start":
            differs = [name for name in _SAME if event.get(name) != task.get(name)]
            if differs:
                raise MorelloError(
                    f"{self.path} is the trace of another task: its {differs[0]} is {event.get(differs[0])!r}, "
                    f"not {task.get(differs[0])!r}",
                    "give another path with --trace",
                )
        elif event["event"] == "sample" and len(times := event.get("paired") or ()) == len(attrs.fields(Paired)):
            self.known[event["parent"], event["key"]] = Paired(*map(float, times))


def _event(line: str) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None
