"""The program itself: its subcommands, and how whatever goes wrong reaches the user."""

from __future__ import annotations

import errno
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from types import MappingProxyType
from typing import Any

import click
from click.shell_completion import CompletionItem

from morello.cli import streams
from morello.errors import MorelloError, MorelloWarning
from morello.interrupt import INTERRUPTED, raised

#: One line about each command; its module, of the same name with `_` for `-`, is imported where it runs.
COMMANDS: Mapping[str, str] = MappingProxyType(
    {
        "run": "Find the best program of every Spec in FILE, check and time it.",
        "compile": "Compile the Spec in FILE to C.",
        "check": "Verify the programs of FILE thoroughly.",
        "bench": "Time the programs of FILE, and a library on the same.",
        "explain": "Show the programs of FILE with what each part costs and holds.",
        "bound": "Show what every program of FILE moves and costs at least.",
        "compare-conv": "Compare what algorithms for the convolutions of FILE move, and what they move at least.",
        "sensitivity": "Show what the cost of moving depends on for the Specs of FILE.",
        "map": "Make programs for the Specs of FILE by what mappers propose, without a full search.",
        "compare-mappers": "Compare programs by mappers: their costs, times, and how soon they are found.",
        "tune": "Make the programs of FILE faster by edits of their schedules, measured on this machine.",
        "precompute": "Fill a database: solve the Specs of FILE, or a family of them.",
        "targets": "List the installed targets, and what they have.",
        "calibrate": "Measure what this machine costs, and write it to a profile.",
        "db": "Look after databases of solved Specs.",
        "cache": "Show or limit what is kept of what was built.",
    }
)


class CommandGroup(click.Group):
    """A group of commands whose errors are messages on stderr, and never exit with status 0."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return sorted(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, importing its module, or None if there is none of this name."""
        if cmd_name not in COMMANDS:
            return None
        return import_module(f"morello.cli.{cmd_name.replace('-', '_')}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what each command does, without importing it."""
        with formatter.section("Commands"):
            formatter.write_dl(sorted(COMMANDS.items()))

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return the commands and options that a word may become, without importing a command."""
        found = [CompletionItem(name, help=what) for name, what in COMMANDS.items() if name.startswith(incomplete)]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the program. Of an exception that nobody foresaw it tells where all that is known of it is kept."""
        try:
            return super().main(*args, **extra)
        except (click.ClickException, click.Abort, click.exceptions.Exit):
            raise
        except OSError as error:
            _tell(error)  # help that cannot be written
            sys.exit(1)
        except Exception as error:
            from morello import crash

            click.echo(crash.told(error), err=True)
            sys.exit(crash.EXIT)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command named. Whatever is no bug becomes a message; a reader that went away is nobody's error."""
        try:
            with raised(), _warnings():
                return super().invoke(ctx)
        except KeyboardInterrupt as error:
            click.echo(str(error) or "interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except MorelloError as error:
            from morello.frontend.diagnostics import SourceError

            click.echo(str(error) if isinstance(error, SourceError) else f"error: {error}", err=True)
            ctx.exit(1)
        except MemoryError:
            click.echo("error: out of memory\n  hint: smaller sizes and longer schedules take less", err=True)
            ctx.exit(1)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            _tell(error)
            ctx.exit(1)


@contextmanager
def _warnings() -> Iterator[None]:
    """Within a block, print warnings of Morello's as the messages of commands are printed."""
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, MorelloWarning):
                click.echo(f"warning: {message}", err=True)
            else:
                others(message, category, *place, **more)

        warnings.showwarning = show
        yield


def _tell(error: OSError) -> None:
    streams.abandon(error)
    place = f"{error.filename}: " if error.filename else ""
    click.echo(f"error: {place}{error.strerror or error}", err=True)


@click.group(cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="morello", message="%(prog)s %(version)s")
def main() -> None:
    """Turn tensor operations into the provably cheapest C program of a target.

    A .spec file says what to compute; `morello run FILE` compiles it, checks it and times it.
    """
