"""Bounds: the least that any program moves and costs, tilings that attain it, and proofs that anybody can check."""
