"""`python -m morello.cli`."""

from morello.cli.app import main

main(prog_name="morello")
