"""What fills the memory of the device?  Counted once, from the real tensors."""

from typing import ClassVar

from trainperf.documents.base import Document


class MemoryLedger(Document, frozen=True, kw_only=True):
    """Bytes by what they are for; tensors that share memory count once."""

    file: ClassVar[str] = "memory.json"
    version: ClassVar[int] = 1
    schema: int = version
    device: str
    parameters_bytes: int
    gradients_bytes: int
    optimizer_state_bytes: dict[str, int]
    """Per kind of tensor, e.g. `exp_avg`."""
