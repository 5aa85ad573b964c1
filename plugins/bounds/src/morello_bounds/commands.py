"""The commands that this distribution adds to the program `morello`."""

from __future__ import annotations

from morello.commands import Command, hookimpl

COMMANDS = (
    Command(
        "bound", "Show lower bounds on bytes moved and cost for the Specs of FILE.", "study", "morello_bounds.cli.bound"
    ),
    Command("front", "Show programs of FILE that trade computing for memory.", "study", "morello_bounds.cli.front"),
    Command("map", "Make programs for the Specs of FILE by mappers.", "study", "morello_bounds.cli.map"),
)


@hookimpl
def morello_commands() -> tuple[Command, ...]:
    return COMMANDS
