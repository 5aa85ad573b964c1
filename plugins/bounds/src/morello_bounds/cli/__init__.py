"""The commands of morello-bounds, one a module."""
