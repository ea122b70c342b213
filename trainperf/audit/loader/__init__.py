"""What does it take to make a batch?  Times the parts of a `DataLoader` on a second one like it."""

from trainperf.audit.loader.anatomy import loader_anatomy


__all__ = ["loader_anatomy"]
