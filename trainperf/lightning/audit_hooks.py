"""Audit of one step of a Lightning fit, between two hooks around its batches.

Fetching, moving the batch and the hooks of others stay out of it.
"""

from collections.abc import Callable

import lightning.pytorch as pl

from trainperf.lightning.session import Session
from trainperf.recording.probes.audit import AuditProbe


class Auditing:
    """The audit of the step with number *at*, under the guard of the fit.

    Args:
        session: The fit.
        module: What the modules' names begin with.
        at: Number of the step in this fit, from 0.
    """

    part = AuditProbe.name

    def __init__(self, session: Session, module: "pl.LightningModule", at: int) -> None:
        self._monitor = session.monitor
        run = session.run if session.writes else None
        self._probe = AuditProbe(module, at, run, session.monitor.guard)
        self._probe.attach(session.recorder)
        self._probe.ledger = session.chosen.ledger

    def before_batch(self, *hook: object) -> None:
        """A batch is on the device.  Runs every micro-batch until the audit is over."""
        del hook
        self._probe.begin_batch()

    def around(
        self, measured: Callable[..., object], over: Callable[[], None]
    ) -> Callable[..., None]:
        """The hook at the end of a batch: our own work after it is not audited.

        Args:
            measured: That work.
            over: Called once the audit is over; from then on nothing of it costs anything.
        """

        def after_batch(*hook: object) -> None:
            self._probe.pause()
            measured(*hook)
            if self._probe.settle():
                over()

        return after_batch

    def end(self) -> None:
        """The fit is over, perhaps in the middle of the audit."""
        if self._monitor.started:
            self._probe.detach()
        else:
            self._probe.pause()
