"""Measurements of what the targets for x86-64 share: no answer depends on them."""
