"""Checks for tests of plugins: microkernels and random programs compute their declared results."""

from morello.testing.conformance import KernelCheck, accepted_specs, check_declaration, kernel_checks
from morello.testing.generate import RandomPrograms, random_spec
from morello.testing.sanitize import run_sanitized
from morello.testing.trials import Trials

__all__ = [
    "KernelCheck",
    "RandomPrograms",
    "Trials",
    "accepted_specs",
    "check_declaration",
    "kernel_checks",
    "random_spec",
    "run_sanitized",
]
