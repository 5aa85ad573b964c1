"""The command that this distribution adds to the program `morello`."""

from morello.commands import Command, hookimpl

TUNE = Command(
    "tune", "Make the programs of FILE faster by measured edits of their schedules.", "study", "morello_tune.cli"
)


@hookimpl
def morello_commands() -> tuple[Command, ...]:
    return (TUNE,)
