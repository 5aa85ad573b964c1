"""The commands that this distribution adds to the program `morello`."""

from morello.commands import Command, hookimpl

COMMANDS = (
    Command("db pull", "Add to FILE signed answers from ADDRESS.", "upkeep", "morello_sharing.cli.pull"),
    Command("db push", "Sign the answers of FILE and write them to ADDRESS.", "upkeep", "morello_sharing.cli.push"),
)


@hookimpl
def morello_commands() -> tuple[Command, ...]:
    return COMMANDS
