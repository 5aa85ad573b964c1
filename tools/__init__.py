"""Fuzzers and fault injectors of the project, run from a checkout: `python -m tools.fuzz.campaign`. In no wheel."""
