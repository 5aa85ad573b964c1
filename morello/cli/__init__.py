"""The command `morello`, one subcommand a file."""

from morello.cli.app import main

__all__ = ["main"]
