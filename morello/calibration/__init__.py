"""Measurement of the costs of a machine: levels, threads, and tables of kernels."""
