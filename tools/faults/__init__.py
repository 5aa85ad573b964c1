"""Breaks databases and build caches in every way a machine can: no answer may be wrong, nothing committed lost.

`python -m tools.faults` does all of it; `tests/db/test_faults.py` does the same on fewer draws.
"""
