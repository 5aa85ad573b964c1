"""Programs in words, tables and trees, for the command line, for Python and for notebooks."""
