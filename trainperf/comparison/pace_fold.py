"""Paced steps of a run, in constant memory: the pace around each, and how far it was waiting.

Steps are thinned as everywhere; timings of the pace are few and thinned on their own, so that a
long run keeps them.
"""

import numpy as np

from trainperf.analysis.run.job_block import JobBlock
from trainperf.core.stats.pace import Column, PacedSteps, paced_steps
from trainperf.core.steps.block import StepBlock, StepSchema


MOST = 4096
"""Steps kept, timings, and cycles of the fit clock; at least half as many of a long run."""


class PaceFold:
    """Every k-th steady step of the first rank, as the steps of all are as long, and its pace.

    A later attempt that recorded other facts replaces what came before it.
    """

    def __init__(self) -> None:
        self._begin(None)

    def _begin(self, schema: StepSchema | None) -> None:
        self._schema = schema
        self._steps: list[Column] = []
        """Rows of steady steps: time in nanoseconds, and the share of it that was waiting."""
        self._timings: list[Column] = []
        """Rows of steady steps passed before a timing, and the timing in nanoseconds."""
        self._passed = 0
        self._stride = 1

    def observe(self, job: JobBlock) -> None:
        """Take the next steps of all ranks."""
        if 0 not in job.blocks:
            return
        steady = job.blocks[0].steady()
        if self._schema != steady.schema:
            self._begin(steady.schema)
        paces = steady.fact("pace_ns")
        if paces is None:
            return
        timed = np.flatnonzero(np.isfinite(paces))
        self._timings.append(np.stack([timed + self._passed, paces[timed]], axis=1))
        steps = np.stack([steady.wall_ns, _waited(steady)], axis=1)
        self._steps.append(steps[-self._passed % self._stride :: self._stride])
        self._passed += len(steady)
        while sum(map(len, self._steps)) > MOST:
            self._steps = [np.concatenate(self._steps)[::2]]
            self._stride *= 2
        while sum(map(len, self._timings)) > MOST:
            self._timings = [np.concatenate(self._timings)[::2]]

    def steps(self) -> PacedSteps | None:
        """The steps with their paces; `None` where the pace was not timed, or too rarely."""
        if not self._timings:
            return None
        places, paces = np.concatenate(self._timings).T
        walls, waited = np.concatenate(self._steps).T
        return paced_steps(walls, places / self._stride, paces, waited)


def _waited(block: StepBlock) -> Column:
    """Shares of the steps' times: a reading is of all steps since the one before."""
    waited_ns = block.fact("waited_ns")
    shares: Column = np.zeros(len(block))
    if waited_ns is None:
        return shares
    read = np.flatnonzero(np.isfinite(waited_ns))
    if len(read):
        starts = np.concatenate([[0], read[:-1] + 1])
        spans = np.add.reduceat(block.wall_ns[: read[-1] + 1], starts)
        shares[: read[-1] + 1] = np.repeat(waited_ns[read] / spans, read - starts + 1)
    return shares
