"""Tables of what is known before any cost: shapes, operand states, limits, and what steps make of them."""
