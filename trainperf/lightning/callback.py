"""Callbacks that measure a fit: everything of it, or one thing each.

Any set of them on one trainer shares one recorder: the first of them leads, the others only say
what they want measured.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import lightning.pytorch as pl
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.utilities.rank_zero import rank_zero_info
from typing_extensions import override

from trainperf.audit.chip_cache import note_chip
from trainperf.core.errors import ConfigError
from trainperf.core.steps.records import FINISHED
from trainperf.lightning.session import Auditing, Session
from trainperf.loop.finish import close_run, first_answer, of_all_ranks, show
from trainperf.meters import Measure, Meter
from trainperf.meters.fold import Reading
from trainperf.recording.extensions import Extensions
from trainperf.recording.monitor import Monitor
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.loader import LoaderProbe
from trainperf.recording.probes.selection import EVERYTHING
from trainperf.recording.probes.tokens import MaskFunction, demand_mask
from trainperf.recording.sinks.base import Sink


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
    yields: ClassVar[bool] = False
    """Whether it leads, and its options hold, only where no other callback of ours does."""

    def __init__(self) -> None:
        self.session: Session | None = None
        """The fit under measurement, while this callback leads one."""
        self._restored: dict[str, Any] = {}
        self._auditing: Auditing | None = None
        self._listen()

    def setup(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", stage: str) -> None:
        """The fit begins: choose the run directory and put the relay in place."""
        del pl_module
        if stage != "fit" or self._leader(trainer) is not self:
            return
        # Another callback's `on_exception` that raises keeps ours from being called.
        self._end(trainer, "interrupted")
        attached = self._attached(trainer)
        self.session = Session(
            trainer,
            frozenset().union(*(callback.measures for callback in attached)),
            next((c.log_every_n_steps for c in attached if c.log_every_n_steps), None),
            next((c.extensions for c in attached if c.extensions is not None), None),
            lines=next((c.lines for c in attached if c.lines is not None), False),
        )
        self.session.open_run(next((c.dirpath for c in attached if c.dirpath), None))
        # Lightning has no action of its own around the sanity check: our empty hooks bring one.
        self._listen("on_sanity_check_start", "on_sanity_check_end", "on_train_start")

    def on_train_start(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule") -> None:
        """Model, optimizers and loaders exist."""
        session = self.session
        if session is None:
            return
        earlier = str(self._restored.get("run", ""))
        if earlier != str(session.run):  # a tuner saves and restores this very fit
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
        at = next((c.audit_at for c in self._attached(trainer) if c.audit_at is not None), None)
        if at is not None and session.run is not None:
            auditing = Auditing(session, pl_module, at)
            guard.run(Auditing.part, lambda: self._audit(auditing, measured))
        scaler = session.chosen.scaler
        if scaler is not None:
            attempt = guard.wrap(scaler.name, session.on_before_optimizer_step)
            self._hear("on_before_optimizer_step", attempt)

    def on_exception(
        self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", exception: BaseException
    ) -> None:
        """Files are closed, the profiler is restored, and the numbers so far are reported."""
        del pl_module
        interrupted = isinstance(exception, KeyboardInterrupt)
        self._end(trainer, "interrupted" if interrupted else type(exception).__name__)

    def teardown(self, trainer: "pl.Trainer", pl_module: "pl.LightningModule", stage: str) -> None:
        """The fit is over."""
        del pl_module
        if stage == "fit":
            self._end(trainer, FINISHED)

    # -- what a kind of measurement may add ----------------------------------------------------

    dirpath: str | None = None
    mask: MaskFunction | None = None
    log_every_n_steps: int | None = None
    report: bool = True
    lines: bool | None = None
    audit_at: int | None = None
    extensions: Extensions | None = None

    def probes(self, session: Session, trainer: "pl.Trainer") -> list[Probe]:
        """Probes beyond those of `measures`."""
        del session, trainer
        return []

    # -- inside -------------------------------------------------------------------------------

    def _end(self, trainer: "pl.Trainer", reason: str) -> None:
        session, self.session = self.session, None
        if session is None:
            return
        auditing, self._auditing = self._auditing, None
        if auditing is not None:
            auditing.end()
        self._listen()
        session.finish(reason)
        if session.monitor.started:
            self._restored = session.state()
        _close(session, trainer, aloud=self._speaks(trainer), wait=reason == FINISHED)

    def _start(
        self, session: Session, trainer: "pl.Trainer", pl_module: "pl.LightningModule"
    ) -> None:
        attached = self._attached(trainer)
        mask = next((c.mask for c in attached if c.mask is not None), None)
        extra = [probe for callback in attached for probe in callback.probes(session, trainer)]
        say = partial(_announce, written=session.run is not None)
        session.start(pl_module, mask, extra, say if self._speaks(trainer) else None)

    def _audit(self, auditing: Auditing, measured: Callable[..., object]) -> None:
        """Be called before each batch too, until the step to audit is over."""

        def over() -> None:
            self._mute("on_train_batch_start")
            self._hear("on_train_batch_end", measured)

        self._auditing = auditing
        self._hear("on_train_batch_start", auditing.before_batch)
        self._hear("on_train_batch_end", auditing.around(measured, over))

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

    def _is_users(self, name: str) -> bool:
        """Whether a subclass has a hook of its own there."""
        return getattr(type(self), name) is not getattr(Measurement, name)

    @staticmethod
    def _attached(trainer: "pl.Trainer") -> "list[Measurement]":
        ours = [c for c in trainer.callbacks if isinstance(c, Measurement)]
        return sorted(ours, key=lambda callback: callback.yields)

    @classmethod
    def _leader(cls, trainer: "pl.Trainer") -> "Measurement":
        """The one that measures most: `TrainPerf` keeps totals, the others none."""
        return max(cls._attached(trainer), key=lambda callback: len(callback.measures))


class TrainPerf(Measurement):
    """Measures everything that applies to the fit it is attached to.

    Args:
        tokens: From a batch to a mask of shape (batch, tokens), where neither `attention_mask`
            nor `labels` tells which tokens count.
        dirpath: Directory under which the run directory is made; by default the logger's.
        log_every_n_steps: Steps between two points in the loggers; by default the trainer's.
        report: Whether to print the report when the fit ends.
        lines: Whether to sample the lines that the training thread is in, for 0.1 % of the time.
        audit_at: Number of a step, from 0, of which every operator is written to `audit.json`:
            it takes longer, and no statistic counts it.
        loader_anatomy: Whether to look into the loader before the first step, for two seconds:
            what a batch costs in `__getitem__`, collate and transport goes to `loader.json`.
        meters: Your own (`trainperf.meters.Meter`), in addition to the built-in ones.
        probes: Your own (`trainperf.recording.probes.base.Probe`), for facts of a step that your
            meters need.
        sinks: Your own (`trainperf.recording.sinks.base.Sink`): they get every step and reading.

    Raises:
        ConfigError: A value is refused; the message says which and what to pass instead.
    """

    measures = EVERYTHING

    def __init__(  # noqa: PLR0913 options that users name
        self,
        *,
        tokens: MaskFunction | None = None,
        dirpath: str | None = None,
        log_every_n_steps: int | None = None,
        report: bool = True,
        lines: bool = True,
        audit_at: int | None = None,
        loader_anatomy: bool = False,
        meters: Sequence[Meter] = (),
        probes: Sequence[Probe] = (),
        sinks: Sequence[Sink] = (),
    ) -> None:
        super().__init__()
        demand_mask(tokens)
        if log_every_n_steps is not None and log_every_n_steps < 1:
            raise ConfigError(
                f"log_every_n_steps={log_every_n_steps}: must be at least 1; leave it out to use "
                "the Trainer's"
            )
        if audit_at is not None and audit_at < 0:
            raise ConfigError(f"audit_at={audit_at}: steps count from 0; try audit_at=20")
        self.extensions = Extensions.of(meters=meters, sinks=sinks, probes=probes)
        self.audit_at = audit_at
        self.loader_anatomy = loader_anatomy
        self.mask = tokens
        self.dirpath = dirpath
        self.log_every_n_steps = log_every_n_steps
        self.report = report
        self.lines = lines

    def probes(self, session: Session, trainer: "pl.Trainer") -> list[Probe]:
        """What looks once, where it was asked for."""
        if not self.loader_anatomy or session.run is None:
            return []
        return [LoaderProbe(trainer.train_dataloader, session.run if session.writes else None)]

    def state_dict(self) -> dict[str, Any]:
        """Totals so far; no clock values.  Written into checkpoints."""
        return self.session.state() if self.session is not None else dict(self._restored)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Totals of the fit that a resumed one continues."""
        if isinstance(state_dict, Mapping):
            self._restored = dict(state_dict)


class AutoTrainPerf(TrainPerf):
    """The callback of `trainperf run`; where the script has a `TrainPerf` too, that one leads."""

    yields = True

    @property
    @override
    def state_key(self) -> str:
        """Different from that of `TrainPerf`: Lightning refuses two callbacks of one key."""
        return "trainperf run"


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
    session.monitor.guard.run("chip", lambda: note_chip(run, measure=wait))
    ranks = trainer.world_size if wait else 1
    session.monitor.guard.run("report", lambda: _report(run, trainer, ranks, aloud=aloud))


def _report(run: Path, trainer: "pl.Trainer", ranks: int, *, aloud: bool) -> None:
    summary = close_run(run, ranks=ranks, aloud=aloud)
    values = of_all_ranks(summary)
    for logger in trainer.loggers:
        if values:  # live, each rank knows only its own
            logger.log_metrics(values, step=trainer.global_step)
        show(getattr(logger, "experiment", None), summary, trainer.global_step)


class StepTimeMonitor(Measurement):
    """Step time alone: steady-state median, percentiles, phases, pauses."""

    measures = frozenset({Measure.STEP_TIME})


class DataWaitMonitor(Measurement):
    """Data wait and data stall alone."""

    measures = frozenset({Measure.DATA_WAIT})


class H2DMonitor(Measurement):
    """The batch transfer alone: time, bytes, rate."""

    measures = frozenset({Measure.H2D})


class GradScalerMonitor(Measurement):
    """The GradScaler alone: overflow rate and loss scale."""

    measures = frozenset({Measure.SCALER})


class TokenThroughputMonitor(Measurement):
    """Tokens and samples per second alone.

    Args:
        tokens: From a batch to a mask of shape (batch, tokens), where neither `attention_mask`
            nor `labels` tells which tokens count.
    """

    measures = frozenset({Measure.TOKENS})

    def __init__(self, *, tokens: MaskFunction | None = None) -> None:
        super().__init__()
        self.mask = tokens


class AllReduceTailMonitor(Measurement):
    """DDP's all-reduce tail alone."""

    measures = frozenset({Measure.TAIL})


class MemoryMonitor(Measurement):
    """Memory peaks alone."""

    measures = frozenset({Measure.MEMORY})
