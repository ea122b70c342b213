"""A comparison of runs in words."""
