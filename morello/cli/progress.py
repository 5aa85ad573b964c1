"""Shows on stderr how search comes along."""

from __future__ import annotations

import time
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


class SearchDisplay:
    """Called with search's progress while it is open: a live line on a terminal, else a plain line now and then.

    `before` are the Specs that the same search solved earlier. Ctrl-C leaves with a message that says how far it came.
    """

    def __init__(self, name: str, before: int):
        self.name = name
        self.solved = 0
        self._before = before
        self._started = self._shown = time.monotonic()
        self._stopped: float | None = None
        screen = Console(stderr=True, markup=False, highlight=False)
        columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
        self._bar = Bar(*columns, console=screen, transient=True) if screen.is_terminal else None
        self._task = self._bar.add_task(f"searching {name}", total=None) if self._bar else None

    @property
    def seconds(self) -> float:
        """How long it has been open."""
        return (self._stopped or time.monotonic()) - self._started

    def __call__(self, progress: Progress) -> None:
        self.solved = progress.solved - self._before
        now = time.monotonic()
        if now - self._shown < (UPDATE_SECONDS if self._bar else LINE_SECONDS):
            return
        self._shown = now
        if self._bar and self._task is not None:
            self._bar.start()
            self._bar.update(self._task, description=self._line())
        else:
            click.echo(f"{self._line()}, {self.seconds:.0f} s", err=True)

    def _line(self) -> str:
        return f"searching {self.name}: {self.solved:,} Specs solved, {self.solved / max(self.seconds, 1e-9):,.0f}/s"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopped = time.monotonic()
        if self._bar and self._bar.live.is_started:
            self._bar.stop()
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(
                f"interrupted the search for {self.name}: {self.solved:,} Specs had been solved in {self.seconds:.1f} s"
            ) from None
