"""What a look into a loader finds, planted: for the rules that read it."""

from dataclasses import dataclass

from trainperf.core.artifacts.loader import LoaderAnatomy, Spread


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What one costs, in milliseconds, and what is in it."""

    getitem: float = 1.0
    collate: float = 1.0
    packing: float = 0.1
    receiving: float = 0.1
    pinning: float | None = None
    workers: int = 0
    samples: int = 32
    tensors: int = 2
    size: int = 1 << 20
    worst: float = 1.0
    """How many times its mean a part takes at its p95."""

    def anatomy(self, *, start_s: float = 0.1) -> LoaderAnatomy:
        """The document; *start_s* is what workers take to start."""
        return LoaderAnatomy(
            batches=31,
            workers=self.workers,
            kind="map",
            samples=self.samples,
            tensors=self.tensors,
            batch_bytes=self.size,
            getitem=self._spread(self.getitem),
            collate=self._spread(self.collate),
            transport=self._spread(self.packing + self.receiving),
            pinning=None if self.pinning is None else self._spread(self.pinning),
            packing_s=self.packing / 1e3,
            receiving_s=self.receiving / 1e3,
            start_s=start_s,
            tensor_s=1e-6,
            getitem_line="images.py:12",
            collate_line="images.py:40",
        )

    def _spread(self, ms: float) -> Spread:
        return Spread(mean_s=ms / 1e3, p95_s=self.worst * ms / 1e3)
