"""Lower bounds by classes of operand states, with layouts and contiguity forgotten."""
