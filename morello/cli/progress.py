"""Shows on stderr how search comes along."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from pathlib import Path
from types import TracebackType
from typing import Self

import click
from rich.console import Console
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn

from morello.search.progress import Progress

#: Seconds between two lines where stderr is no terminal, and between two updates where it is one.
LINE_SECONDS = 10.0
UPDATE_SECONDS = 0.1


class Display(ABC):
    """While open, shows what `describe` says: a live line on a terminal, else a plain line now and then.

    Ctrl-C leaves with what `interrupted` says.
    """

    def __init__(self) -> None:
        self._started = self._shown = time.monotonic()
        self._stopped: float | None = None
        screen = Console(stderr=True, markup=False, highlight=False)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self._bar = Bar(*columns, console=screen, transient=True) if screen.is_terminal else None
        self._task = self._bar.add_task("", total=None) if self._bar else None

    @property
    def seconds(self) -> float:
        """Return the seconds that it has been open."""
        return (self._stopped or time.monotonic()) - self._started

    @abstractmethod
    def describe(self) -> str:
        """Return what to show now."""

    @abstractmethod
    def interrupted(self, error: KeyboardInterrupt) -> str:
        """Return what to say when Ctrl-C has ended it."""

    def refresh(self) -> None:
        """Show the state of things, if enough time has gone by since the last time."""
        now = time.monotonic()
        if now - self._shown < (UPDATE_SECONDS if self._bar else LINE_SECONDS):
            return
        self._shown = now
        if self._bar and self._task is not None:
            self._bar.start()
            self._bar.update(self._task, description=self.describe())
        else:
            click.echo(f"{self.describe()}, {self.seconds:.0f} s", err=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopped = time.monotonic()
        if self._bar and self._bar.live.is_started:
            self._bar.stop()
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(self.interrupted(error)) from None


class SearchDisplay(Display):
    """Called with search's progress. Ctrl-C leaves with a message that says how far it came.

    `before` are the Specs that the same search solved earlier; what is solved is kept in `kept`, if there is one.
    """

    def __init__(self, name: str, before: int, kept: Path | None = None):
        super().__init__()
        self.name = name
        self.solved = 0
        self._before = before
        self._kept = kept
        self._progress = Progress(0, 0.0)

    def __call__(self, progress: Progress) -> None:
        self.solved = progress.solved - self._before
        self._progress = progress
        self.refresh()

    def describe(self) -> str:
        return f"searching {self.name}: {work(self._progress, self.solved, self.seconds)}"

    def interrupted(self, error: KeyboardInterrupt) -> str:
        done = f"{self.solved:,} Specs had been solved in {self.seconds:.1f} s"
        return f"interrupted the search for {self.name}: {done}{kept_in(self._kept, error)}"


def work(progress: Progress, solved: int, seconds: float) -> str:
    """Say how far search is. The time left cannot be told, as nobody knows what is left to solve."""
    parts = [f"{solved:,} Specs solved, {solved / max(seconds, 1e-9):,.0f}/s"]
    if progress.tables:
        parts.append(f"{progress.tables_done:,} of {progress.tables:,} tables done")
    if progress.high is not None:
        parts.append(f"the cost is between {progress.low:,} and {progress.high:,}")
    elif progress.low:
        parts.append(f"the cost is at least {progress.low:,}")
    return ", ".join(parts)


def kept_in(path: Path | None, interrupt: KeyboardInterrupt) -> str:
    """Return what is left after Ctrl-C, as the end of a sentence."""
    if path is None:
        return ""
    if isinstance(interrupt.__context__, KeyboardInterrupt):
        return f"; not all of it is kept in {path}, as saving was interrupted too"
    return f"; what was solved is kept in {path}, and the next run goes on from there"
