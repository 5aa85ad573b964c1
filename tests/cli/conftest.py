"""Runs commands in this process, on Specs that take no time to search."""

from morello.testing.fixtures import ONE, Cli, Write, cli, refused, runnable, write

__all__ = ["BYTES", "ONE", "Cli", "Write", "cli", "refused", "runnable", "write"]

#: No kernel adds up bytes, so that search takes several steps.
BYTES = "spec one = Matmul(1×1×1×1, (u8, GL), (u8, GL), (u8, GL), serial)\n"
