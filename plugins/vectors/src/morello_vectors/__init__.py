"""Microkernels of every CPU with vectors, in GNU C or in the primitives of an instruction set."""
