"""One pass over a run: the same steps of every rank, side by side.

A synchronous step belongs to all ranks: numbers of several ranks may only be combined over steps
that every rank recorded, and a step that is unusual on one rank is unusual.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import cached_property

import numpy as np

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.job_block import FEW_RANKS
from trainperf.analysis.run.journal import Journal
from trainperf.analysis.run.machine import MachineSeries, read_machines
from trainperf.analysis.run.record_file import RecordFile
from trainperf.core.steps.block import BLOCK_STEPS, StepBlock, StepSchema


_EMPTY = StepBlock.from_rows(StepSchema(), [])


class Replay:
    """One pass over a run.  `journals` and `left_out` are complete when `blocks` is exhausted.

    Args:
        run: The opened run.
        machine_bytes: About how much is read of what was sampled beside it, from the end of each
            host's file; `None` for all, 0 for nothing.
    """

    def __init__(self, run: Run, machine_bytes: int | None = None) -> None:
        self.run = run
        self.journals = {rank: Journal(rank) for rank in run.ranks}
        self.left_out = 0
        """Steps that some rank of their attempt does not have."""
        self.attempt = 0
        """Place of the attempt whose steps came last."""
        self._machine_bytes = machine_bytes

    @cached_property
    def machines(self) -> tuple[list[MachineSeries], list[str]]:
        """What was sampled beside the run, read once, and what is wrong with it."""
        nothing = self._machine_bytes == 0
        return ([], []) if nothing else read_machines(self.run, self._machine_bytes)

    def blocks(self) -> Iterator[tuple[StepBlock, ...]]:
        """Blocks of the same steps, one per rank in the order of ranks, with their tags united.

        Steps of a later attempt are numbered on from the earlier one's.  The block of a rank that
        took no part in an attempt is empty: an elastic restart may go on with fewer ranks.
        """
        ranks = len(self.journals)
        _allow_open(ranks)
        at_once = BLOCK_STEPS // min(FEW_RANKS, -(-ranks // FEW_RANKS))
        for attempt, files in enumerate(self.run.attempts):
            self.attempt = attempt
            lanes = {
                file.rank: _steps_of(file, self.journals[file.rank], at_once) for file in files
            }
            for pieces in _abreast(lanes):
                taken = self._common(pieces)
                if any(map(len, taken.values())):
                    yield tuple(taken.get(rank, _EMPTY) for rank in self.journals)

    def _common(self, pieces: Mapping[int, StepBlock]) -> dict[int, StepBlock]:
        """The steps that all ranks have, with the tags of all; the others are counted."""
        every = np.concatenate([piece.index for piece in pieces.values()])
        steps, ranks = np.unique(every, return_counts=True)
        common = steps[ranks == len(pieces)]
        self.left_out += len(steps) - len(common)
        parts = {
            rank: piece if len(piece) == len(common) else piece.select(np.isin(piece.index, common))
            for rank, piece in pieces.items()
        }
        tags = np.bitwise_or.reduce([part.tags for part in parts.values()])
        return {
            rank: part if np.array_equal(part.tags, tags) else part.replaced("tags", tags)
            for rank, part in parts.items()
        }


def _abreast(lanes: Mapping[int, Iterator[StepBlock]]) -> Iterator[dict[int, StepBlock]]:
    """The steps of several ranks, up to the same number at a time."""
    left = dict.fromkeys(lanes, _EMPTY)
    while True:
        left = {
            rank: block if len(block) else next(lanes[rank], _EMPTY) for rank, block in left.items()
        }
        reached = min((block.index[-1] for block in left.values() if len(block)), default=None)
        if reached is None:
            return
        yield {rank: block.select(block.index <= reached) for rank, block in left.items()}
        left = {rank: block.select(block.index > reached) for rank, block in left.items()}


def _steps_of(file: RecordFile, journal: Journal, at_once: int) -> Iterator[StepBlock]:
    """The steps of a file, numbered on; everything in the file goes into the *journal*."""
    journal.begin(file)
    for content in file.entries(at_once):
        journal.add(content)
        if isinstance(content, StepBlock):
            yield content.replaced("index", content.index + file.begun) if file.begun else content
    journal.close()


def _allow_open(files: int) -> None:
    """Let this process have the files of so many ranks open at once, as far as the system does."""
    with suppress(ImportError, ValueError, OSError):  # Windows has none; others may refuse
        import resource  # noqa: PLC0415 see above

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        # Beside those that the process has open already.
        if soft < 2 * files:
            resource.setrlimit(resource.RLIMIT_NOFILE, (min(2 * files, hard), hard))
