"""Comparison of runs: what changed, by how much, and how sure that is."""
