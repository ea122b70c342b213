"""The checks of a run in words."""
