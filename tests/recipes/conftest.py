"""What the tests of the recipes share."""

from support.threads import one_thread


__all__ = ["one_thread"]
