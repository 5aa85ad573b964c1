"""The program itself: its subcommands, and how whatever goes wrong reaches the user."""

from __future__ import annotations

import errno
import sys
from typing import Any

import click

from morello import crash
from morello.cli import bench, calibrate, check, compile, db, explain, precompute, run, streams, targets
from morello.errors import MorelloError
from morello.frontend.diagnostics import SourceError
from morello.interrupt import INTERRUPTED, raised


class CommandGroup(click.Group):
    """A group of commands whose errors are messages on stderr, and never exit with status 0."""

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
            click.echo(crash.told(error), err=True)
            sys.exit(crash.EXIT)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command named. Whatever is no bug becomes a message; a reader that went away is nobody's error."""
        try:
            with raised():
                return super().invoke(ctx)
        except KeyboardInterrupt as error:
            click.echo(str(error) or "interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except MorelloError as error:
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


for module in (run, compile, check, bench, explain, precompute, targets, calibrate, db):
    main.add_command(module.command)
