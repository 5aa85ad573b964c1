"""Lower bounds that know layouts."""
