"""Fixtures of the test kit, and the same examples drawn in every run."""

from hypothesis import settings

from morello.testing.fixtures import cli, isolated, refused, runnable, write

__all__ = ["cli", "isolated", "refused", "runnable", "write"]

settings.register_profile("repeated", derandomize=True, deadline=None)
settings.register_profile("varied", deadline=None)
settings.load_profile("repeated")
