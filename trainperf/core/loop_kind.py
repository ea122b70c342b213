"""Kinds of training loop, and what each calls the things that advice is about."""

from collections.abc import Mapping
from dataclasses import dataclass


_SCHEDULE = "(wait=5, warmup=2, active=3, repeat=1)"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopKind:
    """How to say things to the owner of such a loop: code to paste, without a full stop."""

    name: str
    """Value of `loop` in a run's configuration."""
    title: str
    attach: str
    """The lines that measure it, as in a script."""
    audit: str
    """Asks for an audit of one step."""
    capture: str
    """Records a trace of a few steps."""
    loader_anatomy: str
    """Times the parts of a batch before the fit."""
    tokens: str
    """Says which tokens count."""
    everything: str
    """Measures all there is."""
    less: str
    """Measures less, where the overhead matters."""
    measures: Mapping[str, str]
    """A measurement by itself."""
    user_code: str
    """Where code of the user's own counts as such."""
    ddp: str
    """What wraps the model, and takes DDP's options."""
    wrapped_model: str
    """The wrapped model, from where the step is written."""
    fully_sharded: str
    no_anomaly: str
    accumulation: str
    bf16: str
    """Mixed precision; as the next."""
    fp16: str
    bf16_weights: str


LIGHTNING = LoopKind(
    name="lightning",
    title="With Lightning",
    attach="from trainperf.lightning import TrainPerf\n\nL.Trainer(callbacks=[TrainPerf()])",
    audit="TrainPerf(audit_at=20)",
    capture=f"ScheduledProfiler{_SCHEDULE} next to TrainPerf()",
    loader_anatomy="TrainPerf(loader_anatomy=True)",
    tokens="TrainPerf(tokens=lambda batch: mask)",
    everything="TrainPerf()",
    less="attach only the monitors you need, e.g. StepTimeMonitor() and DataWaitMonitor()",
    measures={
        "data wait": "TrainPerf() or DataWaitMonitor()",
        "h2d": "TrainPerf() or H2DMonitor()",
        "scaler": "TrainPerf() or GradScalerMonitor()",
        "samples": "TrainPerf() or TokenThroughputMonitor()",
        "memory": "TrainPerf() or MemoryMonitor()",
    },
    user_code="a callback",
    ddp="DDPStrategy",
    wrapped_model="self.trainer.model",
    fully_sharded='Trainer(strategy="fsdp")',
    no_anomaly="Trainer(detect_anomaly=False)",
    accumulation="accumulate_grad_batches",
    bf16='Trainer(precision="bf16-mixed")',
    fp16='Trainer(precision="16-mixed")',
    bf16_weights='Trainer(precision="bf16-true")',
)

PLAIN = LoopKind(
    name="plain",
    title="In a loop of your own",
    attach="""from trainperf.loop import LoopMonitor

with LoopMonitor("runs/a") as monitor:
    for batch in monitor.batches(loader):
        train_on(batch)
        monitor.end_step()""",
    audit="monitor.audit(at=20)",
    capture=f"monitor.profile(ScheduledProfile{_SCHEDULE})",
    loader_anatomy="monitor.loader_anatomy()",
    tokens="LoopMonitor(tokens=lambda batch: mask)",
    everything="monitor.watch(model, optimizer) before the first epoch",
    less="bracket fewer phases, and pass monitor.watch() only what you need measured",
    measures={
        "data wait": "for batch in monitor.batches(loader)",
        "h2d": 'with monitor.phase("h2d"): around the copy of the batch',
        "scaler": "monitor.watch(model, optimizer, scaler)",
        "samples": "for batch in monitor.batches(loader), samples in the first dimension",
        "memory": "monitor.watch(model, optimizer)",
    },
    user_code='monitor.phase("callbacks")',
    ddp="DistributedDataParallel",
    wrapped_model="model",
    fully_sharded="torch.distributed.fsdp.fully_shard(model)",
    no_anomaly="torch.autograd.set_detect_anomaly(False)",
    accumulation="gradient accumulation",
    bf16="torch.autocast(device, dtype=torch.bfloat16)",
    fp16="torch.autocast(device, dtype=torch.float16) with a GradScaler",
    bf16_weights="model.bfloat16()",
)

LOOPS = (LIGHTNING, PLAIN)


def loop_of(config: Mapping[str, object]) -> LoopKind:
    """The loop of a run by its configuration; one that names none counts as plain."""
    return LIGHTNING if config.get("loop") == LIGHTNING.name else PLAIN
