"""What did `torch.compile` do in this fit?"""

from typing import ClassVar

from trainperf.documents.base import Document


class Compilation(Document, frozen=True, kw_only=True):
    """Graphs, breaks between them, and what was compiled again."""

    file: ClassVar[str] = "compile.json"
    version: ClassVar[int] = 1
    schema: int = version
    graphs: int
