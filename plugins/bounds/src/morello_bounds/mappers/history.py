"""A file of trials: points of mappers with what came of them, in lines of JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import attrs

from morello.errors import MorelloError


@attrs.frozen
class Trial:
    """A point of a task and the logarithm of its value: less is better, and None where there was no program."""

    task: tuple[float, ...]
    point: tuple[float, ...]
    value: float | None = None


@attrs.define
class History:
    """Trials by the kind of task; with a path, those in the file come first, and what is added is appended to it.

    `objective` is what values are of, since costs and seconds do not compare. Raises MorelloError for a file that
    cannot be read, or holds something else.
    """

    path: Path | None = None
    objective: str = "cost"
    _known: dict[str, list[Trial]] = attrs.field(factory=dict[str, "list[Trial]"], init=False)

    def __attrs_post_init__(self) -> None:
        if self.path is None or not self.path.exists():
            return
        for number, line in enumerate(_text(self.path).splitlines(), 1):
            kind, objective, trial = _read(line, f"{self.path}, line {number}")
            if objective == self.objective:
                self._known.setdefault(kind, []).append(trial)

    def of(self, kind: str) -> Sequence[Trial]:
        """Return the trials of a kind of task, the oldest first."""
        return tuple(self._known.get(kind, ()))

    def add(self, kind: str, trial: Trial) -> None:
        """Add a trial. Raises MorelloError where the file cannot be written."""
        self._known.setdefault(kind, []).append(trial)
        if self.path is None:
            return
        try:
            with self.path.open("a", encoding="utf-8") as file:
                print(json.dumps([kind, self.objective, trial.task, trial.point, trial.value]), file=file)
        except OSError as error:
            raise MorelloError(f"cannot write {self.path}: {error.strerror}", "name another file") from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise MorelloError(f"cannot read {path}: {error}", "name another file") from error


def _read(line: str, place: str) -> tuple[str, str, Trial]:
    try:
        kind, objective, task, point, value = json.loads(line)
        trial = Trial(tuple(map(float, task)), tuple(map(float, point)), None if value is None else float(value))
        numbers = (*trial.task, *trial.point, trial.value or 0.0)
        if not isinstance(kind, str) or not isinstance(objective, str) or not all(map(math.isfinite, numbers)):
            raise ValueError(line)
    except (ValueError, TypeError) as error:
        hint = "name another file: it is made if it does not exist"
        raise MorelloError(f"{place}: no trial of a mapper", hint) from error
    return kind, objective, trial
