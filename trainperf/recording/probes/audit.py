"""Audit of one step of a fit, switched on only while the step's batches are trained.

Every rank audits, so that none waits for a slow one; the first one writes what it saw.
"""

import logging
from pathlib import Path

from torch import nn
from typing_extensions import ParamSpec

from trainperf.audit import Audit
from trainperf.core.artifacts import write_document
from trainperf.core.phases import Tag
from trainperf.recording.guard import Guard
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.memory_ledger import LedgerProbe
from trainperf.recording.recorder import Recorder


P = ParamSpec("P")

log = logging.getLogger("trainperf")


class AuditProbe(Probe):
    """The audit of the step with number *at*, under the guard of the fit.

    Args:
        module: What the modules' names begin with.
        at: Number of the step in this fit, from 0.
        run: Where it is written; `None` writes none.
        guard: A fault of ours ends the audit and nothing else.
    """

    name = "audit"

    def __init__(self, module: nn.Module | None, at: int, run: Path | None, guard: Guard) -> None:
        self._at = at
        self._run = run
        self._guard = guard
        self._audit = Audit(module, lambda function: guard.wrap(self.name, function))
        self._running = False
        self._interrupted = False
        self._left = False
        """Whether hooks may be left, because a step ended with its update."""
        self.over = False
        """Whether nothing more will be audited."""
        self.ledger: LedgerProbe | None = None
        """Who is told what the step allocated."""

    def attach(self, recorder: Recorder) -> None:
        """Begin to look at its open step."""
        self.recorder = recorder

    def begin_batch(self) -> None:
        """A batch is about to be trained.  Runs every micro-batch until the audit is over."""
        if self._left:
            self._release()
        draft = self.recorder.draft
        if self.over or draft is None or draft.index < self._at:
            return
        draft.tags |= Tag.AUDITED
        self._resume()

    def pause(self) -> None:
        """A batch was trained: what follows is not audited."""
        if self._running:
            self._running = False
            self._guard.last(self.name, self._audit.__exit__)
            self._left = True

    def settle(self) -> bool:
        """Write the result if the step is complete; whether it was written now."""
        draft = self.recorder.draft
        if self.over or draft is None or not draft.complete or draft.index < self._at:
            return False
        self.over = True
        self._guard.run(self.name, lambda: self._write(draft.index, draft.micro_batches))
        if self.ledger is not None:
            audited = self._guard.wrap(self.ledger.name, self.ledger.audited)
            audited(self._audit.allocations, draft.index, draft.micro_batches)
        return True

    def gap(self, begins: bool) -> None:  # noqa: FBT001 two moments of one thing
        """A validation in the middle of a batch is no part of the step."""
        if begins and self._running:
            self.pause()
            self._interrupted = True
        elif not begins and self._interrupted:
            self._interrupted = False
            self._resume()

    def detach(self) -> None:
        """The fit is over, perhaps in the middle of the audit."""
        self.pause()
        self._release()
        if not self.over:
            log.warning(
                "trainperf: no step was audited, the fit ended before step %d was complete",
                self._at,
            )
        self.over = True

    def _release(self) -> None:
        self._left = False
        self._guard.last(self.name, self._audit.release)

    def _resume(self) -> None:
        self._running = True
        self._guard.run(self.name, self._audit.__enter__)

    def _write(self, step: int, micro_batches: int) -> None:
        audit = self._audit.result(step=step, micro_batches=micro_batches)
        if self._run is not None:
            write_document(audit, self._run)
