"""The command `morello`, one subcommand a file."""

import atexit
import gc

from morello import interrupt


def main() -> None:
    """Run the command that the program's arguments name, and exit."""
    interrupt.guard()
    # Imported modules stay alive: collecting garbage there takes a third of a short run, mostly at exit.
    gc.set_threshold(400_000)
    atexit.register(gc.freeze)
    from morello.cli import streams

    streams.prepare()
    from morello.cli.app import main as program

    program(prog_name="morello")
