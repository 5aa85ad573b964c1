"""Programs as text, tables and trees, for the command line, Python and notebooks."""
