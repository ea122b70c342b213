"""Feeds what a batch is: its samples, and the bytes and tensors that a transfer has to move."""

from collections.abc import Sequence
from typing import ClassVar

import torch

from trainperf.audit.nested import tensors
from trainperf.recording.probes.base import Batch, Probe, add
from trainperf.recording.probes.compilation import graphs_built
from trainperf.recording.recorder import Draft


MOST_SHAPES = 10_000
"""Shapes that are told apart; caches of primitives hold some thousand."""


class SamplesProbe(Probe):
    """Leading dimension of the batch's first tensor that has one, over the micro-batches.

    And how many shapes that tensor has had: each may fill caches, as oneDNN's of primitives.
    """

    name = "samples"
    facts: ClassVar[tuple[str, ...]] = ("samples", "cache_keys")
    least_ns: ClassVar[int] = 250_000_000

    def begin(self) -> None:
        """Begin to feed *recorder*."""
        self._shape: Sequence[int] = ()
        self._shapes: set[Sequence[int]] = set()
        self.learned["shapes_vary"] = False

    def micro_batch(self, batch: Batch, loss: object) -> None:
        """Look for the first tensor.  Runs every micro-batch."""
        draft = self.recorder.draft
        if draft is None:
            return
        first = batch
        if type(batch) is dict:  # the usual ones first: the general search takes 20 µs
            first = next(iter(batch.values()), None)
        elif isinstance(batch, list | tuple) and batch:
            first = batch[0]
        shape: Sequence[int] = first.shape if isinstance(first, torch.Tensor) else ()
        if not shape:  # a scalar says nothing about the batch
            shape = next((tensor.shape for tensor in tensors(batch) if tensor.ndim), ())
        if shape:
            draft.facts["samples"] = (draft.facts["samples"] or 0) + shape[0]
            if shape != self._shape and len(self._shapes) < MOST_SHAPES:
                self._shape = shape
                self._shapes.add(shape)
                # There were more than that of the last batch beside the usual one.
                self.learned["shapes_vary"] = len(self._shapes) > 2

    def sample(self, draft: Draft) -> None:
        """How many shapes there were, and how many graphs were built for them."""
        draft.facts["cache_keys"] = len(self._shapes) + graphs_built()

    def reasons(self) -> dict[str, str]:
        """Said only when it applies: a batch without tensors."""
        return {"samples": "no tensor was found in the batch"}


class TransferProbe(Probe):
    """Bytes and number of the batch's tensors on the device, for devices to which one copies."""

    name = "transfer"
    facts: ClassVar[tuple[str, ...]] = ("h2d_bytes", "h2d_tensors")

    def micro_batch(self, batch: Batch, loss: object) -> None:
        """Add up the tensors.  Runs every micro-batch."""
        sizes = [tensor.nbytes for tensor in tensors(batch)]
        add(self.recorder.draft, "h2d_bytes", sum(sizes))
        add(self.recorder.draft, "h2d_tensors", len(sizes))
