"""Searches on a cluster of Dask: the schedulers of `morello precompute --scheduler`."""
