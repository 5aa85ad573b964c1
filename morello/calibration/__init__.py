"""Measures what a machine costs: levels, threads, and the tables of kernels."""
