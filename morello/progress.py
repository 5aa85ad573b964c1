"""Display the progress of searches and other long work on stderr and in notebooks."""

from __future__ import annotations

import os
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from types import TracebackType
from typing import TYPE_CHECKING, Literal, Self, TypeAlias

import click

from morello.search.progress import Phase, Progress

if TYPE_CHECKING:
    from rich.console import Console
    from rich.progress import Progress as Bar

#: Seconds between lines if stderr is not a terminal, and between updates of a live line.
LINE_SECONDS = 10.0
UPDATE_SECONDS = 0.2
#: Columns of a line, without the spinner.
WIDTH = 58
_UNITS = "", "k", "M", "G", "T", "P", "E"

#: A function to call with progress, False for none, or None for a display on a terminal or in a notebook.
Listener: TypeAlias = Callable[[Progress], None] | Literal[False] | None


def without_escapes() -> bool:
    """Return whether to print no escape sequences: NO_COLOR is set, or TERM is `dumb`."""
    return bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM") == "dumb"


def _screen() -> Console:
    # rich is slow to import, and short work shows nothing.
    from rich.console import Console

    return Console(stderr=True, markup=False, highlight=False)


def _is_live(screen: Console) -> bool:
    # In notebooks, rich needs widgets, and warns at each update without them.
    return screen.is_terminal or (screen.is_jupyter and find_spec("ipywidgets") is not None)


def _may_be_live() -> bool:
    """Return whether a live display is possible, without importing rich: False for an ordinary pipe or file."""
    asked = any(name in os.environ for name in ("FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"))
    return asked or "IPython" in sys.modules or sys.stderr.isatty()


class Display(ABC):
    """Show the text of `describe` while open: as a live line on a terminal, else as a plain line every 10 s.

    A thread updates it, because the work may report nothing for seconds. Ctrl-C raises KeyboardInterrupt with the text
    of `interrupted`.
    """

    def __init__(self) -> None:
        self._started = time.monotonic()
        self._stopped: float | None = None
        self._bar: Bar | None = None
        #: Whether the display is a live line; None if not determined yet.
        self._live: bool | None = None if _may_be_live() else False
        self._task = None
        self._due = self._started + (LINE_SECONDS if self._live is False else UPDATE_SECONDS)
        self._ended = threading.Event()
        self._ticker = threading.Thread(target=self._tick, daemon=True)

    @property
    def seconds(self) -> float:
        """Return the seconds since the start, until the display was closed."""
        return (self._stopped or time.monotonic()) - self._started

    @abstractmethod
    def describe(self) -> str:
        """Return the text to show. Called by the display's thread."""

    @abstractmethod
    def interrupted(self, error: KeyboardInterrupt) -> str:
        """Return the message after Ctrl-C."""

    def _tick(self) -> None:
        while not self._ended.wait(UPDATE_SECONDS):
            if time.monotonic() >= self._due:
                self._show()

    def _show(self) -> None:
        if self._live is None:
            self._open_bar()
        if self._bar and self._task is not None:
            self._bar.start()
            self._bar.update(self._task, description=self.describe(), refresh=True)
        elif time.monotonic() >= self._due:
            self._due = time.monotonic() + LINE_SECONDS
            click.echo(self.describe(), err=True)

    def _open_bar(self) -> None:
        """Create the live line on a terminal. Deferred to the first update: most work ends before."""
        from rich.progress import Progress as Bar
        from rich.progress import SpinnerColumn, TextColumn

        screen = _screen()
        self._live = _is_live(screen) and not without_escapes()
        if self._live:
            columns = (SpinnerColumn(), TextColumn("{task.description}"))
            # Standard output is not redirected: commands print results there.
            self._bar = Bar(*columns, console=screen, auto_refresh=False, transient=True, redirect_stdout=False)
            self._task = self._bar.add_task("", total=None)
        else:
            self._due = self._started + LINE_SECONDS

    def __enter__(self) -> Self:
        self._ticker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stopped = time.monotonic()
        self._ended.set()
        self._ticker.join()
        if self._bar and self._bar.live.is_started:
            self._bar.stop()
        if isinstance(error, KeyboardInterrupt):
            raise KeyboardInterrupt(self.interrupted(error)) from None


class Spinner(Display):
    """Show work without progress reports, such as `building matmul`. `ended` names it in the message of Ctrl-C."""

    def __init__(self, what: str, ended: str = ""):
        super().__init__()
        self._what, self._ended_words = what, ended or what

    def describe(self) -> str:
        what, _, name = self._what.partition(" ")
        return line(what, name, self.seconds, [])

    def interrupted(self, error: KeyboardInterrupt) -> str:
        return f"interrupted {self._ended_words}"


class ModelDisplay(Display):
    """Show the searches for a model's kernels; call it with the number that is done, and their share of the work.

    `kept` is the database that stores results, None without one.
    """

    def __init__(self, name: str, kernels: int, kept: str | None = None):
        super().__init__()
        self._name, self._kernels, self._kept = name, kernels, kept
        self._done, self._share = 0, 0.0

    def __call__(self, done: int, share: float) -> None:
        self._done, self._share = done, share

    def describe(self) -> str:
        return line("searching", self._name, self.seconds, [f"{self._of} kernels", f"{self._share:.0%} done"])

    def interrupted(self, error: KeyboardInterrupt) -> str:
        done = f"{self._of} kernels were done after {self.seconds:.1f} s"
        return f"interrupted the searches for {self._name}: {done}{kept_in(self._kept, error)}"

    @property
    def _of(self) -> str:
        return f"{self._done} of {self._kernels}"


class SearchDisplay(Display):
    """Show a search; call it with the search's progress.

    `before` is the number of Specs that the same session solved earlier. `kept` is the database that stores results,
    None without one. The message of Ctrl-C names both.
    """

    def __init__(self, name: str, before: int, kept: str | None = None):
        super().__init__()
        self.name = name
        self.solved = 0
        self._before = before
        self._kept = kept
        self._progress = Progress(0, 0.0)

    def __call__(self, progress: Progress) -> None:
        self.solved = progress.solved - self._before
        self._progress = progress

    def describe(self) -> str:
        progress = self._progress
        return line(progress.phase.value, self.name, self.seconds, facts(progress, self.solved))

    def interrupted(self, error: KeyboardInterrupt) -> str:
        done = f"{self.solved:,} Specs had been solved in {self.seconds:.1f} s"
        return f"interrupted the search for {self.name}: {done}{kept_in(self._kept, error)}"


@contextmanager
def subscribe(
    listener: Listener, name: str, before: int, kept: str | None
) -> Iterator[Callable[[Progress], None] | None]:
    """Yield the function that search calls with progress; None for none.

    It is `listener` if that is a function, and by default a `SearchDisplay` on a terminal and in a notebook. Elsewhere
    nothing is printed: stderr belongs to the program that uses Morello.
    """
    if listener is not None:
        yield listener or None
        return
    if not _may_be_live() or not _is_live(_screen()):
        yield None
        return
    with SearchDisplay(name, before, kept) as display:
        yield display


def line(what: str, name: str, seconds: float, facts: Sequence[str]) -> str:
    """Return phase, name, time and the first facts in at most WIDTH columns; long names are cut."""
    parts = [f"{seconds:,.0f} s", *facts]
    # Names keep eight letters, and more only if all facts fit.
    while len(parts) > 1 and len(f"{what} {name[:8]}, {', '.join(parts)}") > WIDTH:
        parts.pop()
    rest = ", ".join(parts)
    room = max(8, WIDTH - len(what) - len(rest) - 3)
    return f"{what} {name if len(name) <= room else name[: room - 1] + '…'}, {rest}"


def facts(progress: Progress, solved: int) -> list[str]:
    """Return the bounds of the cost and the number of solved Specs, most important first. The time left is unknown."""
    parts: list[str] = []
    if progress.high is not None and progress.low <= 1:
        parts.append(f"cost at most {short(progress.high)}")
    elif progress.high is not None:
        gap = progress.high / progress.low - 1
        parts += [f"cost {short(progress.low)} to {short(progress.high)}", f"gap {100 * gap:,.{gap < 1:d}f} %"]
    elif progress.low:
        parts.append(f"cost at least {short(progress.low)}")
    return [*parts, f"{short(solved)} Specs"] if progress.phase == Phase.SEARCH else parts


def short(number: int) -> str:
    """Return a number with a unit prefix, such as 92.11M."""
    if number < 10_000:
        return f"{number:,}"
    power = min((len(str(number)) - 1) // 3, len(_UNITS) - 1)
    return f"{number / 1000**power:.4g}{_UNITS[power]}"


def kept_in(place: str | None, interrupt: KeyboardInterrupt) -> str:
    """Return the end of the message of Ctrl-C: whether results are stored in the database at a path or address."""
    if place is None:
        return ""
    if isinstance(interrupt.__context__, KeyboardInterrupt):
        return f"; not all of it is stored in {place}, as saving was interrupted too"
    return f"; solved Specs are stored in {place}, and the next run continues from there"
