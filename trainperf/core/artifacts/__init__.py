"""Documents about what was inspected once in a fit, and how they are kept.  One file per kind."""

from trainperf.core.artifacts.base import Document, read_document, write_document


__all__ = ["Document", "read_document", "write_document"]
