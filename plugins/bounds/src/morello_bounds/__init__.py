"""Lower bounds on bytes moved and on cost, tilings that attain them, proofs that can be checked, and mappers."""
