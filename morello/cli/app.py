"""The command `morello`: its subcommands, and the messages of errors."""

from __future__ import annotations

import errno
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
from click.shell_completion import CompletionItem

from morello.cli import streams
from morello.commands import GROUPS, Command, plugin_commands
from morello.errors import MorelloError, MorelloWarning, UnknownName, suggestion
from morello.interrupt import INTERRUPTED, raised

#: Distributions that bring a command which the core lacks, by the command's name.
DISTRIBUTIONS: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("bound", "front", "map"), "morello-bounds"),
        **dict.fromkeys(("db pull", "db push"), "morello-sharing"),
        "lsp": "morello-lsp",
        "tune": "morello-tune",
    }
)


def core_commands() -> dict[str, Command]:
    """Return the commands in the folder `commands` by name. Their docstrings are read as text, nothing is imported."""
    found = {}
    for file in sorted((Path(__file__).parent / "commands").glob("[!_]*.py")):
        with file.open(encoding="utf-8") as lines:
            group, _, summary = next(lines).strip().strip('"').partition(": ")
        found[file.stem] = Command(file.stem, summary, group, f"morello.cli.commands.{file.stem}")
    return found


def all_commands() -> dict[str, Command]:
    """Return the commands of the core and of installed plugins by name, grouped as help lists them."""
    found = {**{command.name: command for command in plugin_commands() if " " not in command.name}, **core_commands()}
    return {command.name: command for group in GROUPS for command in found.values() if command.group == group}


def load_added(name: str, commands: Mapping[str, Command]) -> click.Command | None:
    """Return one of `commands`, or None. Raises MorelloError for one of a distribution that is not installed."""
    command = commands.get(name)
    if command is None and name in DISTRIBUTIONS:
        raise MorelloError(f"`morello {name}` is not installed", f"pip install {DISTRIBUTIONS[name]}")
    return command and command.load()


class ExtensibleGroup(click.Group):
    """A command with subcommands of its own, and those that plugins call `NAME SUBCOMMAND`."""

    def _added(self) -> dict[str, Command]:
        return {one.name: one for one in plugin_commands() if one.name.startswith(f"{self.name} ")}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all subcommands, sorted."""
        return sorted({*self.commands, *(name.partition(" ")[2] for name in self._added())})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a subcommand. Plugins are loaded only for those that are not its own."""
        return self.commands.get(cmd_name) or load_added(f"{self.name} {cmd_name}", self._added())


class CommandGroup(click.Group):
    """A group of commands. Errors are messages on stderr with a nonzero exit status."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return [*all_commands()]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, importing its module. Plugins are loaded only for commands that the core lacks."""
        if command := core_commands().get(cmd_name):
            return command.load()
        return load_added(cmd_name, all_commands())

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a line for each command, by group, without importing it."""
        commands = all_commands().values()
        for group, heading in GROUPS.items():
            if rows := [(one.name, one.summary) for one in commands if one.group == group]:
                with formatter.section(heading):
                    formatter.write_dl(rows)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Return completions of a command or option, without importing a command."""
        found = [
            CompletionItem(one.name, help=one.summary)
            for one in all_commands().values()
            if one.name.startswith(incomplete)
        ]
        return [*found, *click.Command.shell_complete(self, ctx, incomplete)]

    def main(self, *args: Any, standalone_mode: bool = True, **extra: Any) -> Any:
        """Run the program. For an unexpected exception, print the path of its report."""
        if not standalone_mode:
            return super().main(*args, standalone_mode=False, **extra)
        try:
            sys.exit(super().main(*args, standalone_mode=False, **extra))
        except click.UsageError as error:
            click.echo(_usage_message(error), err=True)
            sys.exit(error.exit_code)
        except click.Abort:
            click.echo("interrupted", err=True)  # at a question
            sys.exit(INTERRUPTED)
        except OSError as error:
            _print_error(error)  # help that cannot be written
            sys.exit(1)
        except Exception as error:
            from morello import crash

            click.echo(crash.format(error), err=True)
            sys.exit(crash.EXIT)

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Expected errors become messages; a closed pipe is not an error."""
        try:
            with raised(), _warnings():
                return super().invoke(ctx)
        except KeyboardInterrupt as error:
            click.echo(str(error) or "interrupted", err=True)
            ctx.exit(INTERRUPTED)
        except MorelloError as error:
            from morello.frontend.diagnostics import SourceError

            click.echo(str(error) if isinstance(error, SourceError) else f"error: {error}", err=True)
            ctx.exit(2 if isinstance(error, UnknownName) else 1)
        except MemoryError:
            click.echo("error: out of memory\n  hint: smaller sizes and longer schedules need less", err=True)
            ctx.exit(1)
        except OSError as error:
            if error.errno == errno.EPIPE:
                raise
            _print_error(error)
            ctx.exit(1)


@contextmanager
def _warnings() -> Iterator[None]:
    """Within a block, print Morello's warnings as messages on stderr."""
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
            if issubclass(category, MorelloWarning):
                click.echo(f"warning: {message}", err=True)
            else:
                others(message, category, *place, **more)

        warnings.showwarning = show
        yield


def _usage_message(error: click.UsageError) -> str:
    """Return the message for a wrong command line, in the form of MorelloError."""
    if isinstance(error, getattr(click.exceptions, "NoArgsIsHelpError", ())):
        return error.message
    unknown = re.match(r"No such (command|option)\W+?([\w-]+)", error.message)
    text = (error.message if unknown else error.format_message()).rstrip(".")
    hint = f"`{error.ctx.command_path if error.ctx else 'morello COMMAND'} --help` lists "
    if unknown and error.ctx:
        command, hint = error.ctx.command, f"{hint}the {unknown[1]}s"
        if unknown[1] == "command" and isinstance(command, click.Group):
            names = command.list_commands(error.ctx)
        else:
            names = [name for one in command.get_params(error.ctx) for name in one.opts]
        hint = suggestion(unknown[2], names, hint)
    else:
        hint += "arguments and options"
    return f"error: {MorelloError(text[:1].lower() + text[1:], hint)}"


def _print_error(error: OSError) -> None:
    streams.abandon(error)
    place = f"{error.filename}: " if error.filename else ""
    click.echo(f"error: {place}{error.strerror or error}", err=True)


@click.group("morello", cls=CommandGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="morello", message="%(prog)s %(version)s")
def main() -> None:
    """Turn tensor operations into the provably cheapest C program of a target.

    A .spec file says what to compute; `morello run FILE` compiles it, checks it and times it.
    """
