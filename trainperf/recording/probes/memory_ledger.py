"""Feeds `memory.json`: what fills the memory, what gathered in it, and what it ran out of.

Looked at when a step was audited and when the fit ends; other steps do not pay for it.
"""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar

import msgspec

from trainperf.audit.allocations import Storages
from trainperf.audit.attribution import graphs_made
from trainperf.audit.holders import holders
from trainperf.audit.memory_ledger import Trained, count, storages
from trainperf.audit.out_of_memory import out_of_memory
from trainperf.core.artifacts import write_document
from trainperf.core.artifacts.memory import MemoryLedger
from trainperf.recording.probes.base import Probe
from trainperf.recording.process_objects import last_error
from trainperf.recording.recorder import Draft


GROWN_BYTES = 32 << 20
"""What must have been added since the first sample for it to be looked at who holds it."""


class LedgerProbe(Probe):
    """Writes the memory ledger of one fit.

    Args:
        trained: Model and optimizers.
        run: The run directory.
    """

    name: ClassVar[str] = "memory ledger"

    def __init__(self, trained: Trained, run: Path) -> None:
        self._trained = trained
        self._run = run
        self._first = self._grown = 0.0
        """Bytes since the first sample."""
        self._audited: MemoryLedger | None = None
        self._line_of: Callable[[int], str | None] = lambda _: None
        """Storage to the line that made it, as far as an audited step tells."""
        # An interactive session keeps the last error of an earlier cell.
        self._before = last_error()

    def begin(self) -> None:
        """Count the graphs that there are already."""
        self._graphs = graphs_made()

    def resolve(self, drafts: Sequence[Draft]) -> None:
        """Compare what the memory probe has sampled with the first sample.  Every flush."""
        growing = ("allocated_bytes", "owned_bytes")
        for value in filter(None, (draft.facts.get(fact) for draft in drafts for fact in growing)):
            self._first = self._first or value
            self._grown = value - self._first

    def audited(self, followed: Storages, step: int, micro_batches: int) -> None:
        """A step is complete whose storages were followed: write what they were."""
        self._audited = msgspec.structs.replace(
            followed.complete(count(self._trained)), step=step, micro_batches=micro_batches
        )
        self._line_of = followed.line_of
        write_document(self._audited, self._run)

    def detach(self) -> None:
        """The fit is over: look at who holds what, and at what ended it."""
        ledger = self._audited or count(self._trained)
        error = sys.exc_info()[1] or last_error()
        ended = None if error is self._before else out_of_memory(error)
        held = ledger.held
        if self._audited is not None or self._grown >= GROWN_BYTES:
            held = holders(storages(self._trained), self._line_of, self._graphs)
        write_document(msgspec.structs.replace(ledger, held=held, out_of_memory=ended), self._run)
