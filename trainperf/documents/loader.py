"""What does it take to make a batch?  Timed in the loader and its workers, on request."""

from typing import ClassVar

from trainperf.documents.base import Document


class LoaderAnatomy(Document, frozen=True, kw_only=True):
    """Where the time of a batch goes before the loop gets it; seconds are means per batch."""

    file: ClassVar[str] = "loader.json"
    version: ClassVar[int] = 1
    schema: int = version
    batches: int
