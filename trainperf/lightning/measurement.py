"""Base of the callbacks that measure a fit: from `setup` to the end, whatever is measured.

Any set of them on one trainer shares one recorder: the first of them leads, the others only say
what they want measured.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities.rank_zero import rank_zero_info

from trainperf.audit.chip_cache import note_chip
from trainperf.core.launch_environment import AuditPlan
from trainperf.core.steps.records import FINISHED, INTERRUPTED
from trainperf.lightning.session import Session
from trainperf.lightning.trials import FitTrials
from trainperf.loop.finish import close_run, first_answer, nobody_waits, of_all_ranks, show
from trainperf.meters import Measure
from trainperf.meters.fold import Reading
from trainperf.recording.extensions import Extensions
from trainperf.recording.monitor import Monitor
from trainperf.recording.probes.audit import AuditProbe
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.tokens import MaskFunction
from trainperf.recording.upload import Upload
from trainperf.trials import TrialOptions
from trainperf.trials.batch_source import TrialsOver


_USED = frozenset({"setup", "teardown", "on_exception", "on_save_checkpoint", "on_load_checkpoint"})
_HOOKS = tuple(
    name
    for name in vars(Callback)
    if (name.startswith("on_") or name in ("setup", "teardown")) and name not in _USED
)
"""Hooks that Lightning skips, bracket and all, while the attribute is `None`."""


class Measurement(Callback):
    """Base of our callbacks.  Of several on a trainer the first one leads."""

    measures: ClassVar[frozenset[Measure]] = frozenset()
    """What this callback asks for."""
    defers_to_others: ClassVar[bool] = False
    """Whether it leads, and its options hold, only where no other callback of ours does."""

    def __init__(self) -> None:
        self.session: Session | None = None
        """The fit under measurement, while this callback leads one."""
        self._restored: dict[str, Any] = {}
        self._listen()

    def setup(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", stage: str) -> None:
        """The fit begins: choose the run directory and put the relay in place."""
        del pl_module
        if stage != "fit" or self._leader(trainer) is not self:
            return
        # Another callback's `on_exception` that raises keeps ours from being called.
        self._end(trainer, INTERRUPTED)
        attached = self._attached(trainer)
        self.session = Session(
            trainer,
            frozenset().union(*(callback.measures for callback in attached)),
            next((c.log_every_n_steps for c in attached if c.log_every_n_steps), None),
            next((c.extensions for c in attached if c.extensions is not None), None),
            lines=next((c.lines for c in attached if c.lines is not None), False),
            machine=any(c.machine for c in attached),
        )
        trials = _together([c.trials for c in attached if c.trials is not None])
        if trials is not None and trials.ends:  # where the command looks for them
            attached.reverse()
        dirpath = next((c.dirpath for c in attached if c.dirpath), None)
        guard = self.session.monitor.guard
        guard.run(Session.part, partial(self.session.open_run, dirpath))
        if trials is not None and self.session.run is not None:
            self.session.trials = FitTrials(trainer, trials, self.session.run)
            self.session.hear_updates = partial(self._hear_too, "on_before_optimizer_step")
        # Lightning has no action of its own around the sanity check: our empty hooks bring one.
        self._listen("on_sanity_check_start", "on_sanity_check_end", "on_train_start")

    def on_train_start(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Model, optimizers and loaders exist."""
        session = self.session
        if session is None:
            return
        earlier = str(self._restored.get("run", ""))
        if earlier != session.address:  # a tuner saves and restores this very fit
            session.totals = dict(self._restored.get("totals", {}))
            session.continues = earlier
        self._listen()
        guard = session.monitor.guard
        guard.run(Session.part, lambda: self._start(session, trainer, pl_module))
        if Session.part in guard.faults:
            self._end(trainer, "failed")
            return
        measured = guard.wrap(Monitor.part, session.on_train_batch_end)
        self._hear("on_train_batch_end", measured)
        if session.audit is not None:
            self._hear_audit(session.audit, measured)
        scaler = session.chosen.scaler
        if scaler is not None:
            attempt = guard.wrap(scaler.name, session.on_before_optimizer_step)
            self._hear("on_before_optimizer_step", attempt)

    def on_exception(
        self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", exception: BaseException
    ) -> None:
        """Files are closed, the profiler is restored, and the numbers so far are reported."""
        del pl_module
        if isinstance(exception, TrialsOver):
            self._end(trainer, FINISHED)
            return
        interrupted = isinstance(exception, KeyboardInterrupt)
        self._end(trainer, INTERRUPTED if interrupted else type(exception).__name__)

    def teardown(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", stage: str) -> None:
        """The fit is over."""
        del pl_module
        session = self.session
        if stage == "fit":
            self._end(trainer, FINISHED)
        if session is not None and session.trials is not None and session.trials.ends:
            raise TrialsOver  # the fit was over first

    # -- what a kind of measurement may add ----------------------------------------------------

    dirpath: str | None = None
    mask: MaskFunction | None = None
    log_every_n_steps: int | None = None
    report: bool = True
    lines: bool | None = None
    machine: bool = False
    audit: AuditPlan | None = None
    extensions: Extensions | None = None
    trials: TrialOptions | None = None

    def probes(self, session: Session, trainer: "pl.Trainer") -> list[Probe]:
        """Probes beyond those of `measures`."""
        del session, trainer
        return []

    # -- inside -------------------------------------------------------------------------------

    def _end(self, trainer: "pl.Trainer", reason: str) -> None:
        session, self.session = self.session, None
        if session is None:
            return
        self._listen()
        if session.trials is not None:
            session.trials.end()
        session.finish(reason)
        if session.monitor.started:
            self._restored = session.state()
        _close(session, trainer, aloud=self._speaks(trainer), wait=reason == FINISHED)
        if session.upload is not None:
            session.monitor.guard.run(Upload.part, session.upload.end)

    def _start(
        self, session: Session, trainer: "pl.Trainer", pl_module: "pl.LightningModule"
    ) -> None:
        attached = self._attached(trainer)
        mask = next((c.mask for c in attached if c.mask is not None), None)
        extra = [probe for callback in attached for probe in callback.probes(session, trainer)]
        say = partial(_announce, written=session.run is not None)
        audit = next((c.audit for c in attached if c.audit is not None), None)
        session.start(pl_module, mask, extra, say if self._speaks(trainer) else None, audit)

    def _hear_audit(self, audit: AuditProbe, measured: Callable[..., object]) -> None:
        """Be called before each batch too, until no further step will be audited."""

        def before_batch(*_: object) -> None:
            audit.begin_batch()

        def after_batch(*hook: object) -> None:
            audit.pause()  # our own work is no part of it
            measured(*hook)
            if audit.settle():
                self._mute("on_train_batch_start")
                self._hear("on_train_batch_end", measured)

        self._hear("on_train_batch_start", before_batch)
        self._hear("on_train_batch_end", after_batch)

    def _speaks(self, trainer: "pl.Trainer") -> bool:
        return trainer.is_global_zero and all(c.report for c in self._attached(trainer))

    def _listen(self, *hooks: str) -> None:
        """Be called at these hooks only: each one costs the loop a bracket."""
        for name in _HOOKS:
            if name in hooks:
                self.__dict__.pop(name, None)
            else:
                self._mute(name)

    def _mute(self, name: str) -> None:
        """Let Lightning skip the hook, unless it is that of a subclass."""
        if self._is_users(name):
            self.__dict__.pop(name, None)
        else:
            self.__dict__[name] = None

    def _hear(self, name: str, hook: Callable[..., object]) -> None:
        """Have Lightning call *hook* as if it were a method, before the one of a subclass."""
        if not self._is_users(name):
            self.__dict__[name] = hook
            return
        self.__dict__.pop(name, None)
        users = getattr(self, name)

        def both(*arguments: object) -> None:
            hook(*arguments)
            users(*arguments)

        self.__dict__[name] = both

    def _hear_too(self, name: str, hook: Callable[..., object]) -> Callable[[], None]:
        """Have *hook* called after what is heard there already; returns what ends that."""
        before = dict(self.__dict__)
        heard = getattr(self, name)

        def both(*arguments: object) -> None:
            if heard is not None:
                heard(*arguments)
            hook(*arguments)

        def end() -> None:
            del self.__dict__[name]
            if name in before:
                self.__dict__[name] = before[name]

        self.__dict__[name] = both
        return end

    def _is_users(self, name: str) -> bool:
        """Whether a subclass has a hook of its own there."""
        return getattr(type(self), name) is not getattr(Measurement, name)

    @staticmethod
    def _attached(trainer: "pl.Trainer") -> "list[Measurement]":
        ours = [c for c in trainer.callbacks if isinstance(c, Measurement)]
        return sorted(ours, key=lambda callback: callback.defers_to_others)

    @classmethod
    def _leader(cls, trainer: "pl.Trainer") -> "Measurement":
        """The one that measures most: `TrainPerf` keeps totals, the others none."""
        return max(cls._attached(trainer), key=lambda callback: len(callback.measures))


def _together(trials: Sequence[TrialOptions]) -> TrialOptions | None:
    """The command's options with the script's own trials; without the command, the script's."""
    own = tuple(trial for options in trials for trial in options.own)
    chosen = next((options for options in trials if options.ends), next(iter(trials), None))
    return None if chosen is None else replace(chosen, own=own)


def _announce(readings: dict[str, Reading], *, written: bool) -> None:
    """The first answer, so that nobody waits for the end of the fit."""
    answer = first_answer(readings, written=written)
    if answer is not None:
        rank_zero_info("%s", answer)


def _close(session: Session, trainer: "pl.Trainer", *, aloud: bool, wait: bool) -> None:
    """Write the summary and print the report, on rank 0.  After the fit: it may take its time."""
    run = session.run
    if run is None or not trainer.is_global_zero:
        return
    session.monitor.guard.run("chip", lambda: note_chip(run, measure=nobody_waits(finished=wait)))
    ranks = trainer.world_size if wait else 1
    session.monitor.guard.run("report", lambda: _report(run, trainer, ranks, aloud=aloud))


def _report(run: Path, trainer: "pl.Trainer", ranks: int, *, aloud: bool) -> None:
    summary = close_run(run, ranks=ranks, aloud=aloud)
    values = of_all_ranks(summary)
    for logger in trainer.loggers:
        if values:  # live, each rank knows only its own
            logger.log_metrics(values, step=trainer.global_step)
        show(getattr(logger, "experiment", None), summary, trainer.global_step)
