"""What was looked at once in a fit, and how it is kept.  One file here per kind of document."""

from trainperf.core.artifacts.base import Document, read_document, write_document


__all__ = ["Document", "read_document", "write_document"]
