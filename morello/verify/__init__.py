"""Verifies programs against reference semantics in numpy and against the target `reference_c`."""
