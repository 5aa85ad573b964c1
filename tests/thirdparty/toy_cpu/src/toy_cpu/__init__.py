"""The Morello target toy_cpu."""
