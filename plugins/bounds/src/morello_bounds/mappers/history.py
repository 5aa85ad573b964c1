"""The trials of the mapper `bo`, in a file of JSON lines."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import attrs

from morello.errors import MorelloError


@attrs.frozen
class MapperTrial:
    """A point of a task and the logarithm of its value, less is better; None without a program."""

    task: tuple[float, ...]
    point: tuple[float, ...]
    value: float | None = None


@attrs.define
class History:
    """Trials of one objective by kind of task, read from a file if given, and appended to it.

    Raises MorelloError for a file that cannot be read or has another format.
    """

    path: Path | None = None
    objective: str = "cost"
    _known: dict[str, list[MapperTrial]] = attrs.field(factory=dict[str, "list[MapperTrial]"], init=False)

    def __attrs_post_init__(self) -> None:
        if self.path is None or not self.path.exists():
            return
        try:
            text = self.path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise MorelloError(f"cannot read {self.path}: {error}", "name another file") from error
        for number, line in enumerate(text.splitlines(), 1):
            kind, objective, trial = _read(line, f"{self.path}, line {number}")
            if objective == self.objective:
                self._known.setdefault(kind, []).append(trial)

    def of(self, kind: str) -> Sequence[MapperTrial]:
        """Return the trials of a kind of task, the oldest first."""
        return tuple(self._known.get(kind, ()))

    def add(self, kind: str, trial: MapperTrial) -> None:
        """Add a trial. Raises MorelloError where the file cannot be written."""
        self._known.setdefault(kind, []).append(trial)
        if self.path is None:
            return
        try:
            with self.path.open("a", encoding="utf-8") as file:
                print(json.dumps([kind, self.objective, trial.task, trial.point, trial.value]), file=file)
        except OSError as error:
            raise MorelloError(f"cannot write {self.path}: {error.strerror}", "name another file") from error


def _read(line: str, place: str) -> tuple[str, str, MapperTrial]:
    try:
        kind, objective, task, point, value = json.loads(line)
        trial = MapperTrial(tuple(map(float, task)), tuple(map(float, point)), None if value is None else float(value))
        numbers = (*trial.task, *trial.point, trial.value or 0.0)
        if not isinstance(kind, str) or not isinstance(objective, str) or not all(map(math.isfinite, numbers)):
            raise ValueError(line)
    except (ValueError, TypeError) as error:
        hint = "name another file; it is created if it does not exist"
        raise MorelloError(f"{place}: not a trial of the mapper bo", hint) from error
    return kind, objective, trial
