"""Traces: a line of JSON for each result, written at once, so that measurements outlive the process."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import attrs

from morello.errors import MorelloError
from morello.run.paired import Paired
from morello.untrusted import parse_json, read_lines

_HEAD = '{"event": "'
_REMEDY = "give another path with --trace"
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

        Raises MorelloError for a file that cannot be used, for a line without an event, and for another task.
        """
        if path is None:
            return cls()
        made, started, torn = cls(Path(path)), False, ""
        made._append("")
        # Devices and pipes are only written.
        for number, line in enumerate(read_lines(Path(path), _REMEDY) if Path(path).is_file() else (), 1):
            made._torn = not line.endswith("\n")
            try:
                event = _event(line)
            except ValueError as error:
                torn = torn or f"{path}:{number}: not a line of a trace: {error}"
                # A process that was killed may leave a part of its last line, and the next one starts after it.
                if isinstance(error, JSONDecodeError) and (line.startswith(_HEAD) or _HEAD.startswith(line.strip())):
                    continue
                raise MorelloError(torn, _REMEDY) from error
            starts = event["event"] == "start"
            if torn and not starts:
                raise MorelloError(torn, _REMEDY)
            if not started and not starts:
                raise MorelloError(f"{path}:{number}: a result before the start of its task", _REMEDY)
            started, torn = True, ""
            made._learn(event, task)
        if torn and not made._torn:
            raise MorelloError(torn, _REMEDY)
        return made

    def _learn(self, event: Mapping[str, Any], task: Mapping[str, Any]) -> None:
        """Store the times of a sample. Raises MorelloError for the start of another task."""
        for name in _SAME if event["event"] == "start" else ():
            if (other := event.get(name)) != task.get(name):
                rule = f"{self.path} is the trace of another task: its {name} is {other!r}, not {task.get(name)!r}"
                raise MorelloError(rule, _REMEDY)
        if times := event.get("paired") if event["event"] == "sample" else None:
            self.known[event["parent"], event["key"]] = Paired(*times)

    def write(self, event: str, **fields: Any) -> None:
        """Append an event."""
        if self.path is None:
            return
        self._append(f"{chr(10) * self._torn}{json.dumps({'event': event, **fields}, ensure_ascii=False)}\n")
        self._torn = False

    def _append(self, text: str) -> None:
        assert self.path is not None
        try:
            # Half of a surrogate pair, as a language model may answer, is written as an escape sequence.
            with self.path.open("a", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text)
        except OSError as error:
            rule = f"cannot write the trace {self.path}: {error.strerror or error}"
            raise MorelloError(rule, "make room, or give another path with --trace") from error


def _event(line: str) -> dict[str, Any]:
    """Return the event of a line. Raises ValueError for another text."""
    event = parse_json(line)
    if not isinstance(event, dict) or event.get("event") not in ("start", "sample", "end"):
        raise ValueError("a line is a JSON object with an event: start, sample or end")
    if event["event"] == "sample" and event.get("paired") is not None:
        times = event["paired"]
        if not isinstance(times, list) or len(times) != 6 or not {*map(type, times)} <= {int, float}:
            raise ValueError("`paired` is a list of six numbers")
        first, second, gain, low, high, noise = times
        if min(first, second) <= 0 or not 1e-9 <= low <= gain <= high <= 1e9 or not 0 <= noise <= 1e9:
            raise ValueError("times are positive, and a gain lies in its interval")
        if not isinstance(event.get("parent"), str) or not isinstance(event.get("key"), str):
            raise ValueError("`parent` and `key` are texts")
    return event
