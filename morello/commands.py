"""Commands of the program `morello`, as data: help lists them without importing their modules.

A distribution adds commands through the hook `morello_commands` of a module that its entry point in the group
`morello.commands` names. That module imports nothing heavy: help and completion load it.
"""

from __future__ import annotations

import importlib.metadata
import warnings
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import pluggy

from morello.errors import MorelloError, PluginDisabled, remedy

#: The entry point group of plugins that add commands.
ENTRY_POINTS = "morello.commands"
#: The groups of commands and their headings, in the order in which help lists them.
GROUPS = {
    "start": "Compile and run",
    "study": "Study programs",
    "machine": "Targets and machines",
    "upkeep": "Maintenance",
}
hookspec = pluggy.HookspecMarker(ENTRY_POINTS)
hookimpl = pluggy.HookimplMarker(ENTRY_POINTS)


@dataclass(frozen=True)
class Command:
    """A subcommand: its name, its one-line summary, its group in the help (a key of `GROUPS`), and its module.

    A name such as `db push` is that of a subcommand of `db`. The module has the click command under the name `command`.
    It is imported only when the command is run, or the help of the command above it.
    """

    name: str
    summary: str
    group: str
    module: str

    def load(self) -> Any:
        """Import the module and return its click command."""
        return import_module(self.module).command


@hookspec
def morello_commands() -> Iterable[Command]:
    """Return the commands that a plugin adds."""
    return ()


def plugin_commands() -> list[Command]:
    """Return the commands of installed plugins. A plugin that cannot be loaded is skipped with a warning."""
    found: list[Command] = []
    for entry in sorted(importlib.metadata.entry_points(group=ENTRY_POINTS), key=lambda one: one.name):
        manager = pluggy.PluginManager(ENTRY_POINTS)
        manager.add_hookspecs(import_module(__name__))
        try:
            manager.register(entry.load(), entry.name)
            manager.check_pending()
            found += [command for each in manager.hook.morello_commands() for command in each]
        except Exception as error:
            reason = f"the commands of plugin {entry.name!r} cannot be loaded: {type(error).__name__}: {error}"
            hint = remedy(entry.dist.name if entry.dist else entry.name)
            warnings.warn(str(MorelloError(reason, hint)), PluginDisabled, stacklevel=2)
    return found
