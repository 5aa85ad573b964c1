"""The commands that this distribution adds to the program `morello`."""

from __future__ import annotations

from morello.commands import Command, hookimpl

COMMANDS = (
    Command("bound", "Show what every program of FILE moves and costs at least.", "study", "morello_bounds.cli.bound"),
    Command(
        "compare-conv",
        "Compare what algorithms for the convolutions of FILE move.",
        "study",
        "morello_bounds.cli.compare_conv",
    ),
    Command(
        "sensitivity",
        "Show what the cost of moving depends on for the Specs of FILE.",
        "study",
        "morello_bounds.cli.sensitivity",
    ),
    Command("map", "Make programs for the Specs of FILE by what mappers propose.", "study", "morello_bounds.cli.map"),
    Command(
        "compare-mappers",
        "Compare programs by mappers: costs, times, and how soon.",
        "study",
        "morello_bounds.cli.compare_mappers",
    ),
)


@hookimpl
def morello_commands() -> tuple[Command, ...]:
    return COMMANDS
