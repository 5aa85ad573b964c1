"""The command `morello`, as `python -m morello`."""

from morello.cli import main

main()
