"""The command that this distribution adds to the program `morello`."""

from morello.commands import Command, hookimpl

LSP = Command("lsp", "Serve an editor that speaks the Language Server Protocol.", "study", "morello_lsp.cli")


@hookimpl
def morello_commands() -> tuple[Command, ...]:
    return (LSP,)
