"""What was tried before: points of mappers with what came of them, kept in a file of lines of JSON."""

from __future__ import annotations

import json
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

    `objective` is what values are of, since costs and seconds do not compare.
    """

    path: Path | None = None
    objective: str = "cost"
    _known: dict[str, list[Trial]] = attrs.field(factory=dict[str, "list[Trial]"], init=False)

    def __attrs_post_init__(self) -> None:
        if self.path is not None and self.path.exists():
            for number, line in enumerate(self._text(self.path).splitlines(), 1):
                try:
                    kind, objective, *numbers = json.loads(line)
                    task, point, value = numbers
                    trial = Trial(tuple(map(float, task)), tuple(map(float, point)), value and float(value))
                except (ValueError, TypeError) as error:
                    hint = "name another file: it is made if it does not exist"
                    raise MorelloError(f"{self.path}, line {number}: no trial of a mapper", hint) from error
                if objective == self.objective:
                    self._known.setdefault(kind, []).append(trial)

    @staticmethod
    def _text(path: Path) -> str:
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise MorelloError(f"cannot read {path}: {error}", "name another file") from error

    def of(self, kind: str) -> Sequence[Trial]:
        """Return the trials of a kind of task, the oldest first."""
        return tuple(self._known.get(kind, ()))

    def add(self, kind: str, trial: Trial) -> None:
        """Add a trial. Raises MorelloError where the file cannot be written."""
        if self.path is None:
            return
        self._known.setdefault(kind, []).append(trial)
        try:
            with self.path.open("a", encoding="utf-8") as file:
                print(json.dumps([kind, self.objective, trial.task, trial.point, trial.value]), file=file)
        except OSError as error:
            raise MorelloError(f"cannot write {self.path}: {error}", "name another file") from error
