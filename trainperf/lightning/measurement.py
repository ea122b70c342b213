"""Base of the callbacks that measure a fit: from `setup` to the end, whatever is measured.

Any set of them on one trainer shares one fit: the first of them leads, the others only say what
they want measured.
"""

from collections.abc import Callable
from typing import Any, ClassVar

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback

from trainperf.core.launch_environment import TrialsOver
from trainperf.core.steps.records import FINISHED, INTERRUPTED, ended_by
from trainperf.lightning.session import Session
from trainperf.loop.fit import Fit
from trainperf.loop.options import FitOptions
from trainperf.meters import Measure
from trainperf.recording.monitor import Monitor
from trainperf.recording.probes.tokens import MaskFunction
from trainperf.recording.process_objects import nothing
from trainperf.recording.profiling.options import ScheduledProfile


_USED = frozenset({"on_train_start", "on_exception", "on_save_checkpoint", "on_load_checkpoint"})
_HOOKS = tuple(name for name in vars(Callback) if name.startswith("on_") and name not in _USED)
"""Hooks that Lightning skips, bracket and all, while the attribute is `None`."""


class Measurement(Callback):
    """Base of our callbacks.  Of several on a trainer the first one leads."""

    measures: ClassVar[frozenset[Measure]] = frozenset()
    """What this callback asks for."""
    defers_to_others: ClassVar[bool] = False
    """Whether it leads, and its options hold, only where no other callback of ours does."""
    tokens: MaskFunction | None = None

    def __init__(self) -> None:
        self.session: Session | None = None
        """The fit under measurement, while this callback leads one."""
        self._restored: dict[str, Any] = {}
        self._listen()

    def setup(self, trainer: "pl.Trainer", _module: "pl.LightningModule", stage: str) -> None:
        """The fit begins: put the relay in place."""
        if stage != "fit":
            return
        ours = [each for each in trainer.callbacks if isinstance(each, Measurement)]
        attached = sorted(ours, key=lambda callback: callback.defers_to_others)
        # That which measures most leads: `TrainPerf` keeps totals, the others none.
        if max(attached, key=lambda callback: len(callback.measures)) is not self:
            return
        # Another callback's `on_exception` that raises keeps ours from being called.
        self._end(INTERRUPTED)
        options = next((each for each in attached if isinstance(each, FitOptions)), None)
        self.session = Session(
            trainer,
            Fit(options or FitOptions(lines=False, machine=False)),
            frozenset().union(*(callback.measures for callback in attached)),
            next((each.tokens for each in attached if each.tokens is not None), None),
            next((each for each in attached if isinstance(each, ScheduledProfile)), None),
        )
        # Lightning has no action of its own around the sanity check: our empty hooks bring one.
        self._listen(on_sanity_check_start=nothing, on_sanity_check_end=nothing)

    def on_train_start(self, _trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Model, optimizers and loaders exist."""
        session = self.session
        if session is None:
            return
        if not session.start(pl_module, self._restored):
            self._end("failed")
            return
        fit = session.fit
        hooks: dict[str, Callable[..., object]] = {
            "on_train_batch_end": fit.guard.wrap(Monitor.part, session.on_train_batch_end)
        }
        if fit.chosen.scaler is not None or fit.tries:
            hooks["on_before_optimizer_step"] = fit.guard.wrap(
                Fit.hooks, session.on_before_optimizer_step
            )
        self._listen(**hooks)

    def on_exception(
        self, _trainer: "pl.Trainer", _module: "pl.LightningModule", exception: BaseException
    ) -> None:
        """Files are closed, the profiler is restored, and the numbers so far are reported."""
        self._end(ended_by(type(exception)))

    def teardown(self, _trainer: "pl.Trainer", _module: "pl.LightningModule", stage: str) -> None:
        """The fit is over."""
        session = self.session
        if stage == "fit":
            self._end(FINISHED)
        if session is not None and session.fit.tries and session.fit.monitor.started:
            raise TrialsOver  # the fit was over first; that of a tuner never began

    # -- inside -------------------------------------------------------------------------------

    def _end(self, reason: str) -> None:
        session, self.session = self.session, None
        if session is None:
            return
        self._listen()
        session.fit.end(reason)
        if session.fit.monitor.started:
            self._restored = session.state()

    def _listen(self, **hooks: Callable[..., object]) -> None:
        """Be called at these hooks, and at those of a subclass: each costs the loop a bracket."""
        for name in _HOOKS:
            self._hear(name, hooks.get(name))

    def _hear(self, name: str, hook: Callable[..., object] | None) -> None:
        """Have Lightning call *hook* as if it were a method, before that of a subclass.

        Where there is neither, it skips it.
        """
        own = vars(self)
        own.pop(name, None)
        if getattr(type(self), name) is getattr(Measurement, name):
            own[name] = hook
        elif hook is not None:
            hears, users = hook, getattr(self, name)

            def both(*arguments: object) -> None:
                hears(*arguments)
                users(*arguments)

            own[name] = both
