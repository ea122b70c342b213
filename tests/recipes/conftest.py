"""What the tests of the recipes share."""

from support_threads import one_thread


__all__ = ["one_thread"]
