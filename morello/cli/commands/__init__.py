"""One module a command: `NAME.py` has the click command `command`, and a docstring "GROUP: SUMMARY" for the help."""
