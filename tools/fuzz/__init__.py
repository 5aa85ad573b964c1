"""Random checks without an end: each command takes a seed and prints how to repeat a failure."""
