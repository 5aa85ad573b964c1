"""A language server for Spec files."""
