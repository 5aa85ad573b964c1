"""The command `morello`, one subcommand a file."""

from morello import interrupt


def main() -> None:
    """Run the command that the program's arguments name, and exit."""
    interrupt.guard()
    from morello.cli import streams

    streams.prepare()
    from morello.cli.app import main as program

    program(prog_name="morello")
