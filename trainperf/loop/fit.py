"""One fit, whatever loop it is: run directory, probes, audit, captures, cost, upload, exit, report.

An adapter says what its loop consists of (`FitFacts`), what happens in it, and when it is over; it
decides nothing else.
"""

import atexit
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.optim import Optimizer
from typing_extensions import ParamSpec

from trainperf.core import run_directory, spool
from trainperf.core.interleaving import directory
from trainperf.core.launch_environment import LaunchSignal
from trainperf.core.loop_kind import PLAIN, LoopKind
from trainperf.core.machine.clocks import HostClock, monotonic_ns, wall_clock_anchor
from trainperf.core.machine.limits import launched_ranks
from trainperf.core.machine.processes import this_process
from trainperf.core.paths import AnyPath, is_remote, path_of
from trainperf.core.phases import Tag
from trainperf.core.steps.records import (
    FINISHED,
    NOT_CLOSED,
    RunInfo,
    Scalar,
    Totals,
    ended_by,
)
from trainperf.loop.options import FitOptions
from trainperf.loop.phase_contexts import PhaseContexts
from trainperf.loop.report import close_run, first_answer, note_chip
from trainperf.meters import METERS, Measure
from trainperf.meters.fold import Reading
from trainperf.recording import run_identity, run_settings
from trainperf.recording.early_lines import EARLY_LINES, prepared_s
from trainperf.recording.machine.probe import is_first_of_host, machine_probe
from trainperf.recording.monitor import Monitor, RunParts
from trainperf.recording.probes.audit import AuditProbe
from trainperf.recording.probes.base import Batch, Probe
from trainperf.recording.probes.interleaving import turns_probe
from trainperf.recording.probes.lines import LinesProbe
from trainperf.recording.probes.selection import (
    EVERYTHING,
    OF_TRAINING,
    FitObjects,
    ProbeSet,
    choose,
    inapplicable,
)
from trainperf.recording.probes.standstill import StandstillProbe
from trainperf.recording.process_objects import last_error, nothing
from trainperf.recording.profiling.options import CaptureRank, ScheduledProfile
from trainperf.recording.profiling.profiler_probe import capture_probe
from trainperf.recording.ray_storage import ray_storage
from trainperf.recording.shared_run import shared_run_directory, written
from trainperf.recording.sinks import default_sinks
from trainperf.recording.sinks.loggers import Outputs
from trainperf.recording.sinks.trackers import OpenTrackers, imported
from trainperf.recording.step_cost import HookPrice, StepCost
from trainperf.recording.upload import Upload
from trainperf.recording.worker_lines import PART, WORKER_LINES


log = logging.getLogger("trainperf")

P = ParamSpec("P")
R = TypeVar("R")

PATIENCE = 64
"""Batches without a step's end from which on a batch is taken to be a step."""

_OF_TRAINING = (
    *("optimizer_fused", "optimizer_foreach", "optimizer_device"),
    *("grad_scaler", "gradient_bytes"),
)
"""Settings that an inference loop has not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FitFacts:
    """A loop that is about to be measured, as its adapter sees it."""

    objects: FitObjects
    base: str | AnyPath | None
    """Where the run directory is made unless the user has said; `None` makes none."""
    root: torch.nn.Module | None = None
    """The user's module without wrappers, where that is known: its parts are named from there."""
    kind: LoopKind = PLAIN
    loader: object = None
    config: Mapping[str, Scalar] = field(default_factory=dict)
    """Settings of the framework, beyond what every loop tells."""
    rank: int | None = None
    """Of this process; `None` asks torch's process group."""
    outputs: Outputs = field(default_factory=Outputs)
    """Where the loop's own numbers go, of rank 0."""
    log_every: int = 50
    """Steps between two points there, unless the user has said."""
    measures: frozenset[Measure] = EVERYTHING
    probes: tuple[Probe, ...] = ()
    """What tells of this loop what a framework would."""
    notes: Callable[[], dict[str, str]] = dict
    """How numbers were obtained, as far as known now."""
    reasons: Mapping[str, str] = field(default_factory=dict)
    """Why facts are missing, beyond what the choice of probes tells."""
    actions_ns: Callable[[], dict[str, int]] = dict
    """Exclusive host time of each user hook."""
    coarse: Callable[[], bool] = bool
    """Whether it has turned out by now that data wait is not the loader's alone."""
    trials: "Callable[[Fit, FitFacts], Probe] | None" = None
    """What takes the training through its trials; by default as much of it as of a plain loop."""
    takes_batches: bool = True
    """Whether its batches go through `Fit.through`, by which changes of them are tried."""
    profile: ScheduledProfile | None = None
    """What is traced, unless the user has said."""
    steps_before: int = 0
    """Optimizer steps before this fit: numbers of traces go on from there."""
    earlier: Mapping[str, Any] = field(default_factory=dict)
    """Of the fits that this one continues: `totals` of steps, samples and tokens, and the `run`."""
    micro_batches: int = 1
    """Of a step, as the fit begins."""
    period: int = 0
    """Batches after which validation or an epoch comes back; 0 if that is not known."""


class Fit:
    """One fit on one rank.  It begins when this is made.

    Args:
        options: What the user asked for; what a command has launched this process for is added.
        clock: Host clock; another than the machine's is not sampled.
    """

    part = "start of the fit"
    hooks = "hooks of the loop"
    micro_batches = 1
    """Of a step; one that has fewer is a partial group."""
    tried = False
    """Whether all changes were: the loop is to be ended."""
    assumed = ""
    """Why every batch counts as a step, where nobody has told of one in `PATIENCE` batches."""
    _ranks = 1
    _outputs = Outputs()
    address = ""
    """Where people find the run; empty without one."""
    _unended, _hears_ends = 0, False
    """Batches that have ended no step, and whether any has."""

    def __init__(self, options: FitOptions, clock: HostClock = monotonic_ns) -> None:
        self.options = options
        self.monitor = Monitor(clock)
        self.recorder, self.guard = self.monitor.recorder, self.monitor.guard
        self.run: Path | None = None
        """The run directory, once the fit was started; of one behind a URL, its spool."""
        self.chosen = ProbeSet()
        self.audit: AuditProbe | None = None
        """Until no further step is audited."""
        self.attempt: Callable[[Optimizer], object] = nothing
        """An optimizer is about to be stepped with fresh gradients, perhaps under a scaler."""
        self.through: Callable[[Iterator[Any]], Iterator[Any]] = iter
        """Through which its batches go; something else than nothing where changes are tried."""
        self.cost: StepCost | None = None
        """Times what an adapter runs in every step, until it is clear what that costs."""
        self._renew: Callable[[], object] = nothing
        self.on_end: Callable[[str], object] = nothing
        """Called first as the fit ends, with the reason."""
        self.reason_at_exit = NOT_CLOSED
        """Of a fit that nobody ended before the process did, without an error."""
        self.undo = ExitStack()
        """Takes the adapter's hooks away: when the fit is over, or after a fault of ours."""
        self.closing = ExitStack()
        """What is closed when the report is written."""
        self.launch = options.launched()
        self.tries = self.launch.trials is not None
        """Whether changes are tried in it, and the process ends with the last of them."""
        self.phases = PhaseContexts(self.recorder, self.guard, self.chosen)
        """Its brackets; others once it has started, and once it is clear what these cost."""
        EARLY_LINES.fit_begins()
        self._started_at = wall_clock_anchor()
        self._error_before = last_error()
        for part, act in (
            (self.part, self._discard),
            (self.hooks, self.give_up),
            (Monitor.part, self.give_up),
        ):
            self.guard.when_faulty(part, act)
        if options.lines:  # before there is a loader: it forks its workers when it is asked first
            self.guard.run(PART, WORKER_LINES.start)

    # -- the start ----------------------------------------------------------------------------

    def start(
        self, describe: Callable[[], FitFacts], listen: Callable[[], object] = nothing
    ) -> bool:
        """Model, optimizers and loaders exist: choose directory and probes; whether that worked.

        On several ranks it takes a moment of each, and no collective of torch's: a rank may have no
        fit.

        Args:
            describe: What the loop consists of.
            listen: Puts the adapter's hooks in, once there is something to tell.
        """
        if self.guard.run(self.part, lambda: self._start(describe())):
            self.guard.run(self.hooks, listen)
        return self.measured

    def _start(self, facts: FitFacts) -> bool:
        atexit.register(self._at_exit)
        objects, rank = facts.objects, facts.rank
        if rank is None:
            several = dist.is_available() and dist.is_initialized()
            rank = dist.get_rank() if several else 0
            objects.world_size = dist.get_world_size() if several else 1
        self._ranks = objects.world_size
        chosen = facts.base and (directory() or self.launch.dirpath or ray_storage() or facts.base)
        base = written(str(chosen) if chosen else None, path_of)
        address = shared_run_directory(base, rank, objects.world_size)
        self.run = written(address, spool.local)
        objects.run = self.run if rank == 0 else None
        shown = facts.outputs if rank == 0 and not self.tries else None
        self._outputs = replace(
            shown or Outputs(),
            run=self.run,
            rank=rank,
            trackers=OpenTrackers(shown.loggers) if shown and imported() else None,
        )
        self._measure(facts)
        self.renew_phases(facts.kind)
        self.address = str(self.run or "")
        if self.run is not None and address is not None and is_remote(address):
            upload = Upload(self.run, address, rank)
            self.address = str(upload.url)
            self.closing.callback(self.guard.run, Upload.part, upload.end)
            self.guard.run(Upload.part, upload.start)
        self.launch.send(LaunchSignal.RECORDED)
        return True

    def _discard(self) -> None:
        """Nothing is measured, and no empty directory is left."""
        run, self.run = self.run, None
        self.audit, self.chosen = None, ProbeSet()
        if run is not None and self._outputs.rank == 0:
            spool.discard_empty(run)

    def _measure(self, facts: FitFacts) -> None:
        """Choose the probes and start the monitor."""
        objects, trains = facts.objects, facts.kind.trains
        self.micro_batches = facts.micro_batches
        chosen = choose(objects, facts.measures if trains else facts.measures - OF_TRAINING)
        self.chosen = chosen
        if chosen.scaler is not None:
            self.attempt = self.guard.wrap(chosen.scaler.name, chosen.scaler.attempt)
        chosen.probes += [*facts.probes, *self._looks(facts), *self.options.probes]
        info = self._info(facts)
        # Last of all: what the others do as a step closes is part of the turn.
        turns = turns_probe(chosen.clock, info, facts.micro_batches, facts.period)
        trials = self._trials(facts)
        sinks = [*default_sinks(self._outputs), *self.options.sinks]
        answers = self.options.report and self._outputs.rank == 0
        self.monitor.start(
            RunParts(
                info=info,
                probes=[*chosen.probes, *trials, *turns],
                sinks=sinks,
                device=chosen.clock,
                log_every=self.options.log_every_n_steps or facts.log_every,
                # Not the facts themselves: a loader may hold the whole trainer.
                totals=partial(self._totals, facts.actions_ns, facts.notes),
                first_answer=partial(self._announce, facts.coarse, facts.kind) if answers else None,
                meters=[m for m in METERS if m.measure is None or m.measure in facts.measures],
                own_meters=tuple(self.options.meters),
            )
        )

    def _looks(self, facts: FitFacts) -> list[Probe]:
        """Probes that look at something once, or beside the loop."""
        options, objects, run = self.options, facts.objects, self.run
        place = CaptureRank(
            run=run,
            rank=self._outputs.rank,
            world_size=objects.world_size,
            device=objects.device.type,
            offset=facts.steps_before,
        )
        profile = options.profile or facts.profile
        capture = None if profile is None else capture_probe(profile, place, self.guard)
        probes: list[Probe] = [] if capture is None else [capture]
        early = EARLY_LINES.take()
        self._prepared_s = prepared_s(early)
        sampled = self.recorder.now_ns is monotonic_ns
        if options.lines and objects.run is not None and sampled:
            probes.append(LinesProbe(objects.run, early=early))
        else:  # nobody would read what workers write
            WORKER_LINES.end()
        if run is None:
            return probes
        if options.hang_after_s and sampled:
            probes.append(
                StandstillProbe(
                    run,
                    self._outputs.rank,
                    objects.world_size,
                    on_host=objects.device.type == "cpu",
                    least_s=options.hang_after_s,
                )
            )
        if self.launch.audit_plan is not None:
            self.audit = AuditProbe(
                facts.root or objects.module,
                self.launch.audit_plan,
                place,
                self.guard,
                self.chosen.ledger,
            )
            probes.append(self.audit)
        first = objects.world_size == 1 or is_first_of_host(self._outputs.rank)
        if options.machine and sampled and first:
            probes += machine_probe(run, self._outputs.rank, objects.device)
        return probes

    def _trials(self, facts: FitFacts) -> list[Probe]:
        """What takes the training through its trials, in a process that ends with them."""
        if not self.tries or self.run is None or facts.objects.module is None:
            return []
        self.reason_at_exit = FINISHED
        return [(facts.trials or _trials)(self, facts)]

    def _info(self, facts: FitFacts) -> RunInfo:
        objects, rank = facts.objects, self._outputs.rank
        launched = 1 if objects.world_size == 1 else launched_ranks()
        return RunInfo(
            started_at=self._started_at,
            rank=rank,
            prepared_s=self._prepared_s,
            world_size=objects.world_size,
            device=objects.device.type,
            attempt=run_directory.attempt(),
            process=this_process(),
            reasons={**self.chosen.reasons, **inapplicable(facts.kind), **facts.reasons},
            software=run_identity.software(),
            hardware={
                **run_identity.hardware(objects.device),
                "local_world_size": objects.local_world_size or launched,
            },
            config={**_configuration(facts), **facts.config},
            environment=run_identity.environment(rank=rank),
            totals=dict(facts.earlier.get("totals", {})),
            continues=str(facts.earlier.get("run", "")),
        )

    def _totals(
        self, actions_ns: Callable[[], dict[str, int]], notes: Callable[[], dict[str, str]]
    ) -> Totals:
        chosen = self.chosen
        lengths = chosen.tokens.lengths if chosen.tokens else {}
        waits = chosen.contention
        return Totals(
            at_step=0,
            actions_ns=actions_ns(),
            threads_ns=waits.threads_ns() if waits else {},
            sequence_lengths=dict(sorted(lengths.items())),
            longest_tokens=chosen.tokens.longest_tokens if chosen.tokens else 0,
            notes={**notes(), **({"step": self.assumed} if self.assumed else {})},
            contention=(self.guard.run(waits.name, waits.totals) or {}) if waits else {},
        )

    def _announce(
        self, coarse: Callable[[], bool], kind: LoopKind, readings: dict[str, Reading]
    ) -> bool:
        answer = first_answer(
            readings,
            written=self.run is not None,
            coarse=coarse(),
            whole=kind.run_noun,
        )
        if answer is not None:
            print(answer, flush=True)  # noqa: T201 the answer is for people, as the report
        return answer is not None

    # -- the loop -----------------------------------------------------------------------------

    @property
    def measured(self) -> bool:
        """Whether what happens in the loop now is part of a step, or of a pause between two."""
        off = {self.part, Monitor.part, self.hooks} & self.guard.faults.keys()
        return self.monitor.started and not self.monitor.finished and not off

    def micro_batch(
        self, batch: Batch, loss: object, *, complete: bool, begun: int | None = None
    ) -> None:
        """A forward-backward pass is over; *complete* with the update.  Runs every micro-batch.

        Args:
            batch: What it was of.
            loss: Its loss.
            complete: Whether a step is.
            begun: The host time from which on the loop waits for us, by default now.
        """
        audit, cost, draft = self.audit, self.cost, self.recorder.draft
        self._hears_ends |= complete and not self.assumed
        if audit is not None:
            audit.pause()  # our own work is no part of it
        self.monitor.micro_batch(batch, loss, complete=complete, begun=begun)
        if audit is not None:
            audit.settle(batch)
        if complete and draft is not None and draft.micro_batches < self.micro_batches:
            draft.tags |= Tag.PARTIAL_GROUP  # the epoch has ended
        if cost is not None:
            self._settle_cost(cost, complete=complete, begun=begun)

    def batch_is_step(self, unheard: str) -> bool:
        """Whether so many batches have passed without a step's end that each must be one.

        Asked of a batch that has ended none, in a loop that may never tell of one.

        Args:
            unheard: What was not heard of in as many batches.
        """
        self._unended += 1
        if self._unended == PATIENCE and not self._hears_ends:
            self.assumed = f"{unheard} in {PATIENCE} batches, so every batch counts as a step"
            log.warning("trainperf: %s", self.assumed)
        return bool(self.assumed)

    def begin_batch(self) -> None:
        """A batch is about to be trained: the audited step may begin.  Runs every micro-batch."""
        if self.audit is not None and not self.audit.begin_batch():
            self.audit = None

    def pause_audit(self) -> None:
        """What follows is no part of the audited step."""
        if self.audit is not None:
            self.audit.pause()

    def time(self, renew: Callable[[], object], price: HookPrice | None = None) -> None:
        """Have what an adapter runs in every step timed for a while, by the machine's clock.

        Args:
            renew: Puts functions anew to where they are called, each as `timed` gives it.
            price: What PyTorch takes for its hooks, if it has any.
        """
        self.cost, self._renew = StepCost(monotonic_ns, price), renew
        renew()

    def timed(self, function: Callable[P, R]) -> Callable[P, R]:
        """The function, whose time is counted as long as it is not clear what that comes to."""
        return function if self.cost is None else self.cost.timed(function)

    def _settle_cost(self, cost: StepCost, *, complete: bool, begun: int | None) -> None:
        """Of the first steps."""
        draft = self.recorder.draft if complete else None
        # The monitor counts itself, and an audit is no usual cost.
        switch_ns = cost.micro_batch_over(begun, draft)
        if switch_ns is not None:
            self.cost, self.monitor.switch_ns = None, switch_ns
            self._renew()
        elif draft is not None and self.recorder.listener is None:  # a trace would show it
            self.guard.run(cost.part, cost.look)

    def renew_phases(self, kind: LoopKind = PLAIN) -> None:
        """Make the brackets anew: probes, or what is timed, have changed."""
        self.phases = PhaseContexts(
            self.recorder, self.guard, self.chosen, trains=kind.trains, cost=self.cost
        )

    # -- the end ------------------------------------------------------------------------------

    def end(self, reason: str = FINISHED) -> None:
        """Close the files, write the summary, print the report on rank 0.  Safe to call twice."""
        EARLY_LINES.end()
        atexit.unregister(self._at_exit)
        if self.monitor.finished:
            return
        self.guard.last(self.hooks, lambda: self.on_end(reason))
        self.remove_hooks()
        self.pause_audit()  # the fit may be over in the middle of it
        self.monitor.finish(reason)
        if self.run is not None and self._outputs.rank == 0:
            self._report(self.run, finished=reason == FINISHED)
        self.guard.last("end of the fit", self.closing.close)

    def remove_hooks(self) -> None:
        """Take the adapter's hooks away, for nobody trains any more.  Safe to call at any time."""
        self.guard.last(self.hooks, self.undo.close)

    def give_up(self) -> None:
        """After a fault of ours no step is measured any more: a part of one would be no step."""
        self.pause_audit()
        self.undo.close()
        self.recorder.abandon()

    def _report(self, run: Path, *, finished: bool) -> None:
        """Where this is rank 0; it waits for the files of the others if the fit came to its end."""
        self.guard.run("chip", lambda: note_chip(run, finished=finished))
        ranks = self._ranks if finished else 1
        close = partial(
            close_run, run, ranks=ranks, aloud=self.options.report, outputs=self._outputs
        )
        self.guard.run("report", close)

    def _at_exit(self) -> None:
        error = last_error()
        own = None if error is self._error_before else error
        self.end(self.reason_at_exit if own is None else ended_by(type(own)))


def _trials(fit: Fit, facts: FitFacts) -> Probe:
    from trainperf.loop.trials import FitTraining  # noqa: PLC0415 it loads every change there is

    return FitTraining(fit, facts).probe()


def _configuration(facts: FitFacts) -> dict[str, Scalar]:
    """What every loop tells of itself."""
    objects, model = facts.objects, facts.objects.module
    of_model: dict[str, Scalar] = {}
    if model is not None:
        of_model = {**run_identity.model(model), "precision": run_identity.precision(model)}
    settings = run_settings.settings(model, objects.optimizers, objects.scaler)
    if facts.kind.trains:
        settings["optimizers"] = run_settings.names(objects.optimizers)
        settings["schedulers"] = run_settings.names(objects.schedulers)
    else:
        settings = {name: settings[name] for name in settings if name not in _OF_TRAINING}
    return {
        **of_model,
        "loop": facts.kind.name,
        **settings,
        "seed": torch.initial_seed(),
        **run_identity.loader(facts.loader),
    }
