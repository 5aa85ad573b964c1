"""Runs built programs on arrays, and times them."""
