"""Timing of what it takes to make a batch, on a second `DataLoader` like the user's."""

from trainperf.audit.loader.anatomy import loader_anatomy


__all__ = ["loader_anatomy"]
