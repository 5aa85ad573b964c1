"""Shared by the benchmarks of kernels: problems, worker processes, timing in C, limits of the core, reports."""
