"""The command `morello`, one subcommand a file."""

import atexit
import gc
import sys

from morello import interrupt


def main() -> None:
    """Run the command that the program's arguments name, and exit."""
    interrupt.guard()
    # Imported modules stay alive: collecting garbage there takes a third of a short run, mostly at exit.
    gc.set_threshold(400_000)
    atexit.register(gc.freeze)
    from morello.cli import streams

    streams.prepare()
    if sys.argv[1:] and not sys.argv[1].startswith("-"):
        # Not for help, versions and completions, which need no attrs.
        from morello.cli import methods

        methods.keep()
    from morello.cli.app import main as program

    program(prog_name="morello")
