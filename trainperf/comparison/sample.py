"""What of a run is resampled?  Steady steps of every rank, thinned evenly, in constant memory."""

from collections.abc import Sequence

import numpy as np

from trainperf.core.steps.block import StepBlock


MOST_STEPS = 2000
"""At least half as many of a long run are kept: by then the interval is narrow enough."""


class SampleFold:
    """Keeps every so-and-so-many-th steady step of every rank, in order.

    A later attempt that recorded other facts replaces what came before it.
    """

    def __init__(self) -> None:
        self._kept: list[list[StepBlock]] = []
        self._stride = 1
        self._seen = 0
        self._count = 0

    def observe(self, blocks: Sequence[StepBlock]) -> None:
        """Take the next steps: the same ones of every rank that took part."""
        steady = [block.steady() for block in blocks if len(block)]
        if len(steady) < len(blocks):
            return  # after an elastic restart with fewer ranks: other work than the rest
        if not self._kept or self._kept[0][0].schema != steady[0].schema:
            self._kept = [[] for _ in blocks]
            self._stride, self._seen, self._count = 1, 0, 0
        length = len(steady[0])
        chosen = np.arange(-self._seen % self._stride, length, self._stride)
        self._seen += length
        self._count += len(chosen)
        for kept, block in zip(self._kept, steady, strict=True):
            kept.append(block.take(chosen))
        while self._count > MOST_STEPS:
            self._thin()

    def sample(self) -> tuple[StepBlock, ...]:
        """The steps kept, one block a rank; none if there was no steady step."""
        return tuple(StepBlock.joined(kept) for kept in self._kept)

    def _thin(self) -> None:
        wide = self.sample()
        every_other = np.arange(0, self._count, 2)
        self._kept = [[block.take(every_other)] for block in wide]
        self._stride *= 2
        self._count = len(every_other)
