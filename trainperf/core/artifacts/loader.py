"""Contents of `loader.json`: what it takes to make a batch, timed in the loader and its workers."""

import math
from typing import ClassVar, Literal

import msgspec

from trainperf.core.artifacts import Document


LIBRARIES = {
    "webdataset.": "WebDataset",
    "streaming.": "Mosaic StreamingDataset",
    "grain.": "Grain",
    "nvidia.dali.": "DALI",
    "batchgenerators.": "batchgenerators",
    "tensorflow.": "tf.data",
    "tensorflow_datasets.": "tf.data",
}
"""Module of an iterator of batches that is no `DataLoader`, to what it is called."""


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Host time of one part of a batch, in seconds, over the batches that were timed."""

    mean_s: float
    p95_s: float


class LoaderAnatomy(Document, frozen=True, kw_only=True):
    """Where the time of a batch goes before the loop gets it.

    Host time, of a loader that nothing else waits for: not the wait of the training loop, which
    sees only what its workers do not hide.
    """

    file: ClassVar[str] = "loader.json"
    batches: int
    """Timed ones: the first of each worker is left out where there are others."""
    workers: int
    """`num_workers` of the loader; 0 makes batches in the training process."""
    kind: Literal["map", "iterable"]
    """Whether samples are asked for by key or come in turn."""
    samples: float
    """In a batch."""
    tensors: float
    """In a batch, wherever they are in it."""
    batch_bytes: float
    """Of those tensors, and of the arrays and byte strings in it."""
    getitem: Spread
    """All samples of a batch: `__getitem__`, `__getitems__`, or the iterator's `__next__`."""
    collate: Spread
    """`collate_fn`: from samples to a batch."""
    transport: Spread | None
    """From the worker that has a batch to the process that has received it: packing into shared
    memory, the queue, and unpacking.  `None` where no worker was asked."""
    pinning: Spread | None
    """The copy into page-locked memory; `None` where the loader does not pin."""
    packing_s: float | None
    """Mean of the part of `transport` that keeps the worker from its next batch."""
    receiving_s: float | None
    """Mean of the part that keeps the training process busy: no number of workers hides it."""
    start_s: float
    """Until the first batch, with the start of the workers."""
    tensor_s: float | None = None
    """To take one small tensor out of another and stack it, on this machine as it was then: the
    least that a tensor of a sample costs."""
    getitem_line: str | None = None
    """`file:line` at which the user's code for a sample begins; `None` where it is torch's."""
    collate_line: str | None = None
    """The same of the code for a batch."""
    workers_needed: int | None = None
    """That keep up with the step; `None` where the time of a step is not known."""

    @property
    def making_s(self) -> float:
        """Mean time in a worker to have a batch."""
        return self.getitem.mean_s + self.collate.mean_s

    @property
    def worker_s(self) -> float:
        """Mean time that a batch takes of a worker: it packs one while it makes the next."""
        return max(self.making_s, self.packing_s or 0.0)

    def workers_for(self, step_s: float) -> int:
        """How many workers give a batch every *step_s*, the step without its wait for data."""
        # To a hundredth: nothing here is known better, and 3.0001 workers are three.
        return max(1, math.ceil(round(self.worker_s / step_s, 2)))
