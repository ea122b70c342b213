"""What can the chip of this run do?  Measured where no data sheet is in the table."""

from typing import ClassVar

from trainperf.core.artifacts.base import Document
from trainperf.core.machine.chips import Chip


class MeasuredChip(Document, frozen=True, kw_only=True):
    """The limits that a probe found on the machine of the run."""

    file: ClassVar[str] = "chip.json"
    version: ClassVar[int] = 1
    schema: int = version
    chip: Chip
