"""How does one step of a fit get audited?  The mode is on while its batches are trained, only then.

Fetching, moving the batch and the hooks of others stay out of it.  Every rank does it, so that none
waits for a slow one; rank 0 writes what it saw.
"""

import logging
from collections.abc import Callable

import lightning.pytorch as pl
from typing_extensions import ParamSpec

from trainperf.audit import Audit
from trainperf.documents import write_document
from trainperf.lightning.session import Session
from trainperf.phases import Tag


P = ParamSpec("P")

log = logging.getLogger("trainperf")


class Auditing:
    """The audit of the step with number *at*, under the guard of the fit.

    Args:
        session: The fit.
        module: What the modules' names begin with.
        at: Number of the step in this fit, from 0.
    """

    part = "audit"

    def __init__(self, session: Session, module: "pl.LightningModule", at: int) -> None:
        self._session = session
        self._at = at
        self._guard = session.monitor.guard
        self._audit = Audit(module, self._shield)
        self._running = False
        self._over = False

    def before_batch(self, *hook: object) -> None:
        """A batch is on the device.  Runs every micro-batch until the audit is over."""
        del hook
        draft = self._session.recorder.draft
        if draft is None or draft.index < self._at or self._over:
            return
        draft.tags |= Tag.AUDITED
        self._running = True
        self._guard.run(self.part, self._audit.__enter__)

    def around(
        self, measured: Callable[..., object], over: Callable[[], None]
    ) -> Callable[..., None]:
        """The hook at the end of a batch: our own work after it is not audited.

        Args:
            measured: That work.
            over: Called once the audit is over; from then on nothing of it costs anything.
        """

        def after_batch(*hook: object) -> None:
            self._pause()
            measured(*hook)
            if self._settled():
                over()

        return after_batch

    def end(self) -> None:
        """The fit is over, perhaps in the middle of the audit."""
        self._pause()
        if not self._over and self._session.monitor.started:
            log.warning(
                "trainperf: no step was audited, the fit ended before step %d was complete",
                self._at,
            )
        self._over = True

    def _pause(self) -> None:
        if self._running:
            self._running = False
            self._guard.last(self.part, self._audit.__exit__)

    def _settled(self) -> bool:
        """Write the result if the step is complete."""
        draft = self._session.recorder.draft
        if self._over or draft is None or not draft.complete or draft.index < self._at:
            return False
        self._over = True
        self._guard.run(self.part, lambda: self._write(draft.index, draft.micro_batches))
        ledger = self._session.ledger
        if ledger is not None:
            audited, made = self._guard.wrap(ledger.name, ledger.audited), self._audit.allocations
            audited(made, draft.index, draft.micro_batches)
        return True

    def _shield(self, function: Callable[P, None]) -> Callable[P, None]:
        return self._guard.wrap(self.part, function)

    def _write(self, step: int, micro_batches: int) -> None:
        audit = self._audit.result(step=step, micro_batches=micro_batches)
        run = self._session.run
        if run is not None and self._session.writes:
            write_document(audit, run)
