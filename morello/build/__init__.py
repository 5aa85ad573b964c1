"""Builds C: compilers, the cache of libraries, precompiled headers."""
