"""Target reference_c: plain C that spells out what an operation means."""
