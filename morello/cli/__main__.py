"""`python -m morello.cli`."""

from morello.cli import main

main()
