"""The commands `morello db push` and `morello db pull`."""
