"""Start of a plain loop's fit: its run directory is agreed upon, and its objects are handed on."""

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

import torch
import torch.distributed as dist

from trainperf.core import spool
from trainperf.core.errors import ConfigError
from trainperf.core.interleaving import directory
from trainperf.core.launch_environment import AuditPlan
from trainperf.core.loop_kind import INFERENCE, PLAIN, LoopKind, loop_of
from trainperf.core.places import AnyPath, RemotePath, path_of
from trainperf.core.steps.records import Scalar
from trainperf.loop.finish import first_answer
from trainperf.loop.prepared_loaders import holds_ahead, loader_under
from trainperf.meters.fold import Reading
from trainperf.recording import run_identity, run_settings
from trainperf.recording.extensions import Extensions
from trainperf.recording.fit import FitPlan, start_fit
from trainperf.recording.monitor import Monitor
from trainperf.recording.probes.audit import AuditProbe
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.inference import InferenceProbe
from trainperf.recording.probes.loader import LoaderProbe
from trainperf.recording.probes.loop_habits import ValidationProbe
from trainperf.recording.probes.plain_loop import PlainLoopProbe
from trainperf.recording.probes.selection import FitObjects, ProbeSet
from trainperf.recording.profiling.options import CaptureRank, ScheduledProfile, trace_scalars
from trainperf.recording.profiling.profiler_probe import capture_probe
from trainperf.recording.shared_run import shared_run_directory, written
from trainperf.recording.sinks.base import Outputs, Writer
from trainperf.recording.upload import Upload
from trainperf.trials import TrialOptions
from trainperf.trials.batch_source import BatchSource
from trainperf.trials.state import Stateful
from trainperf.trials.training import Training


NO_DEVICE_COPY = 'not measured: put the copy into `with monitor.phase("h2d"):`'


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopOptions:
    """What the user chose when the monitor was made, and before the first epoch."""

    base: AnyPath | None
    """Where the run directory is made; `None` makes none."""
    writer: Writer | None
    log_every: int
    aloud: bool
    """Whether anything is printed."""
    lines: bool
    """Whether the training thread is sampled."""
    kind: LoopKind = PLAIN
    machine: bool = True
    """Whether the machine is sampled beside it."""
    started_at: str
    extensions: Extensions = field(default_factory=Extensions)
    profiler: ScheduledProfile | None = None
    """What is traced."""
    loader_anatomy: bool = False
    """Whether the loader is looked into."""
    audit: AuditPlan | None = None
    """Which step is audited, if any."""
    trials: TrialOptions | None = None
    """What is tried, if anything is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopFacts:
    """What an adapter knows of its loop, which a plain one has to be watched for."""

    config: Mapping[str, Scalar]
    software: Mapping[str, str]
    training: Callable[[FitObjects, BatchSource | None], Training] | None = None
    """What trials may touch of it; by default what they may of a plain one."""
    coarse: Callable[[], bool] = bool
    """Whether it has turned out by now that data wait is not the loader's alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedFit:
    """A fit that is being measured."""

    run: Path | None
    """The run directory; of one behind a URL, its spool."""
    rank: int
    chosen: ProbeSet
    audit: AuditProbe | None = None
    source: BatchSource | None = None
    """Through which its batches come, where changes are tried."""
    upload: Upload | None = None
    """Of a run behind a URL."""


def start(
    monitor: Monitor,
    objects: FitObjects,
    options: LoopOptions,
    loader: object,
    notes: Callable[[], dict[str, str]],
    facts: LoopFacts | None = None,
) -> StartedFit:
    """Choose directory and probes, and start the monitor; without *facts* the loop is plain.

    On several ranks it takes a moment of each, and no collective: a rank may have no monitor.
    """
    rank = 0
    if dist.is_available() and dist.is_initialized():
        rank, objects.world_size = dist.get_rank(), dist.get_world_size()
    base = options.base and path_of(directory() or options.base)
    address = shared_run_directory(base, rank, objects.world_size)
    run = written(address, spool.local)
    objects.run = run if rank == 0 else None
    begins = _Start(
        monitor=monitor,
        objects=objects,
        options=options,
        loader=loader,
        facts=facts,
        outputs=Outputs(run=run, rank=rank, writer=options.writer),
        audit=_audit(objects, options, CaptureRank.of(objects, run, rank), monitor),
        source=_source(loader, options),
    )
    with _discarded_on_error(objects.run):
        chosen = start_fit(monitor, begins.plan(notes))
    return StartedFit(
        run=run,
        rank=rank,
        chosen=chosen,
        audit=begins.audit,
        source=begins.source,
        upload=_upload(monitor, address, run, rank),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Start:
    """What a fit begins with, and what its plan asks for."""

    monitor: Monitor
    objects: FitObjects
    options: LoopOptions
    loader: object
    facts: LoopFacts | None
    """`None` of a plain loop."""
    outputs: Outputs
    audit: AuditProbe | None
    source: BatchSource | None

    def plan(self, notes: Callable[[], dict[str, str]]) -> FitPlan:
        """The fit, as every loop describes its own."""
        objects, options, facts = self.objects, self.options, self.facts
        kind = options.kind if facts is None else loop_of(facts.config)
        own = {} if facts is None else facts.config
        coarse = bool if facts is None else facts.coarse
        say = partial(
            _say, written=self.outputs.run is not None, coarse=coarse, whole=kind.run_noun
        )
        return FitPlan(
            objects=objects,
            outputs=self.outputs,
            started_at=options.started_at,
            config={**_configuration(objects, self.loader, kind), **own},
            software={} if facts is None else facts.software,
            log_every=options.log_every,
            lines=options.lines,
            machine=options.machine,
            notes=notes,
            probes=self.probes,
            trials=self.trials,
            reasons=lambda chosen: {"h2d_device_ns": NO_DEVICE_COPY} if chosen.marks else {},
            extensions=options.extensions,
            first_answer=say if options.aloud and self.outputs.rank == 0 else None,
        )

    def probes(self, chosen: ProbeSet) -> list[Probe]:
        """Beyond those that every fit has."""
        objects, options = self.objects, self.options
        own = _watchers(objects, options.kind) if self.facts is None else []
        if options.loader_anatomy and self.outputs.run is not None:
            own.append(LoaderProbe(self.loader, objects.run))
        if self.audit is not None:
            self.audit.ledger = chosen.ledger
            own.append(self.audit)
        return [*own, *_profiler(objects, options, self.outputs, self.monitor)]

    def trials(self, chosen: ProbeSet) -> list[Probe]:
        """What takes the fit through its trials, if there are any."""
        trials, objects = self.options.trials, self.objects
        if trials is None or not isinstance(objects.module, torch.nn.Module):
            return []
        make = (self.facts and self.facts.training) or _training
        training = make(objects, self.source)
        return [trials.probe(training, chosen.clock, objects.run, self.monitor.guard)]


def _source(loader: object, options: LoopOptions) -> BatchSource | None:
    if options.trials is None:
        return None
    return BatchSource(loader_under(loader), holds_ahead(loader))


def _upload(
    monitor: Monitor, address: AnyPath | None, run: Path | None, rank: int
) -> Upload | None:
    """The upload of a run behind a URL, which goes on from now on."""
    if run is None or not isinstance(address, RemotePath):
        return None
    upload = Upload(run, address, rank)
    monitor.guard.run(Upload.part, upload.start)
    return upload


@contextmanager
def _discarded_on_error(run: Path | None) -> Iterator[None]:
    """Leaves no empty run directory behind where the block raises."""
    with ExitStack() as undo:
        if run is not None:
            undo.callback(spool.discard_empty, run)
        yield
        undo.pop_all()


def device_of(device: torch.device | str | None, model: torch.nn.Module) -> torch.device:
    """The device that the user named, else that of the model's first parameter."""
    if device is not None:
        return torch.device(device)
    first = next(model.parameters(), None)
    return first.device if first is not None else torch.device("cpu")


def stateful(objects: FitObjects) -> list[Stateful]:
    """Schedulers and scaler, as far as their state can be put back."""
    candidates = (*objects.schedulers, objects.scaler)
    return [each for each in candidates if isinstance(each, Stateful)]


def _training(objects: FitObjects, source: BatchSource | None) -> Training:
    module = cast("torch.nn.Module", objects.module)
    others = stateful(objects)
    return Training(module, objects.optimizers, objects.device, source, others=others)


def kind_named(name: str) -> LoopKind:
    """The kind of a loop of one's own, by the name that users give.

    Raises:
        ConfigError: There is no such kind.
    """
    kinds = {"training": PLAIN, INFERENCE.name: INFERENCE}
    if name not in kinds:
        raise ConfigError(f"kind={name!r}: must be one of {', '.join(map(repr, kinds))}")
    return kinds[name]


def demand_nothing_trained(kind: LoopKind, *training: object) -> None:
    """Optimizers, a scaler, schedulers and trials only where the loop trains.

    Raises:
        ConfigError: An inference loop was given any of them.
    """
    given = [each for each in training if each is not None]
    if not kind.trains and any(not isinstance(each, Sequence) or each for each in given):
        raise ConfigError(
            f'kind="{kind.name}": nothing is trained; call watch(model) without optimizers, scaler '
            "and schedulers, and try no changes, or leave kind out"
        )


def _watchers(objects: FitObjects, kind: LoopKind) -> list[Probe]:
    """What tells of a plain loop what a framework would."""
    called = _called(objects.module)
    watchers: list[Probe] = [PlainLoopProbe(called, objects.device.type, trains=kind.trains)]
    if not kind.trains:
        return [*watchers, InferenceProbe(_models(objects.module), objects.device)]
    if isinstance(called, torch.nn.Module):
        watchers.append(ValidationProbe(called))
    return watchers


def _called(module: object) -> object:
    """What the loop calls: of several modules the first."""
    return next(iter(_models(module)), None)


def _models(module: object) -> list[torch.nn.Module]:
    """What was watched: several are in one list."""
    if isinstance(module, torch.nn.ModuleList):
        return list(module)
    return [module] if isinstance(module, torch.nn.Module) else []


def _audit(
    objects: FitObjects, options: LoopOptions, place: CaptureRank, monitor: Monitor
) -> AuditProbe | None:
    if options.audit is None:
        return None
    module = objects.module if isinstance(objects.module, torch.nn.Module) else None
    return AuditProbe(module, options.audit, place, monitor.guard)


def _profiler(
    objects: FitObjects, options: LoopOptions, outputs: Outputs, monitor: Monitor
) -> list[Probe]:
    if options.profiler is None:
        return []
    writer = outputs.writer if outputs.rank == 0 else None
    show = partial(_show, writer) if writer is not None else None
    place = CaptureRank.of(objects, outputs.run, outputs.rank, show)
    probe = capture_probe(options.profiler, place, monitor.guard)
    return [] if probe is None else [probe]


_OF_TRAINING = ("optimizer_fused", "optimizer_foreach", "grad_scaler", "gradient_bytes")
"""Settings that an inference loop has not."""


def _configuration(objects: FitObjects, loader: object, kind: LoopKind) -> dict[str, Scalar]:
    model = objects.module
    of_model: dict[str, Scalar] = {}
    if isinstance(model, torch.nn.Module):
        of_model = {**run_identity.model(model), "precision": run_identity.precision(model)}
    settings = run_settings.settings(model, objects.optimizers, objects.scaler)
    if kind.trains:
        settings["optimizers"] = run_settings.names(objects.optimizers)
        settings["schedulers"] = run_settings.names(objects.schedulers)
    else:
        settings = {name: settings[name] for name in settings if name not in _OF_TRAINING}
    return {
        **of_model,
        "loop": kind.name,
        **settings,
        "seed": torch.initial_seed(),
        **run_identity.loader(loader),
    }


def _show(writer: Writer, step: int, figures: Mapping[str, float]) -> None:
    """Key figures of a trace, at the last of its steps."""
    for tag, value in trace_scalars(figures).items():
        writer.add_scalar(tag, value, step)


def _say(
    readings: dict[str, Reading], *, written: bool, coarse: Callable[[], bool], whole: str
) -> None:
    sentence = first_answer(readings, written=written, coarse=coarse(), whole=whole)
    if sentence is not None:
        sys.stdout.write(f"{sentence}\n")
        sys.stdout.flush()
