"""Morello: turns tensor operations into the provably cheapest C program of a target."""

from importlib.metadata import version

from morello.api import compile, goal, parse, synthesize
from morello.errors import MorelloError
from morello.goal import Goal

__version__ = version("morello")
__all__ = ["Goal", "MorelloError", "__version__", "compile", "goal", "parse", "synthesize"]
