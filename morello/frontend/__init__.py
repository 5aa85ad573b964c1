"""The Spec language: text to Specs and schedules, and back."""

from morello.frontend.diagnostics import SourceError
from morello.frontend.parser import parse, parse_schedule, parse_spec
from morello.frontend.specfile import Declaration, SpecFile, show_file, show_spec

__all__ = [
    "Declaration",
    "SourceError",
    "SpecFile",
    "parse",
    "parse_schedule",
    "parse_spec",
    "show_file",
    "show_spec",
]
