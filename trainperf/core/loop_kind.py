"""Kinds of loop, and what each calls the things that advice is about."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace


NO_TRAINING = "not applicable: nothing is trained"
"""Reason why an inference loop lacks a reading."""

NO_INFERENCE = "not applicable: a loop that trains"
"""Reason why any other lacks a reading of answers."""

GATHER = "the gather of token counts before forward (average_tokens_across_devices)"
"""Where the ranks of a Hugging Face training meet before its forward."""

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
    tokens: str
    """Says which tokens count."""
    everything: str
    """Measures all there is."""
    measures: Mapping[str, str]
    """A measurement by itself."""
    user_code: str
    """Where code of the user's own counts as such."""
    wrapped_model: str
    """The wrapped model, from where the step is written."""
    fully_sharded: str
    accumulation: str
    bf16: str
    """Mixed precision."""
    bf16_weights: str
    compiled: str
    """Has the model compiled."""
    fused: str
    """Has the optimizer make its update in one kernel."""
    logging: str
    """Has values logged every so many `{steps}`."""
    kept: str = "keep it a tensor (loss.detach(), torch.where) and read it every n-th step"
    """In place of a value that the host reads in the step."""
    own: bool = False
    """Whether the user wrote the loop, and brackets its phases."""
    trains: bool = True
    """Whether a step ends with an update; otherwise it is a batch of requests that is answered."""
    run_noun: str = "fit"
    """What all of it is called."""
    mark: str = ""
    """Before its ranks, where it is not what people expect."""
    work: tuple[str, ...] = ("forward", "backward", "optimizer")
    """Phases in which its model computes."""
    samples: str = "samples"
    """What a batch is made of."""
    unclosed: str = "ended before its training was over"
    """How a run ended that nobody closed: a Trainer says when it is over."""
    ours: str = ""
    """What trainperf itself does among the callbacks."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Phase that holds something else than usual, to what that is."""
    waits: str = ""
    """Where a wait for data is taken, if not around the loader."""
    to_be_tried: str = ""
    """What its script must do so that changes can be tried, after a sentence."""
    trials_from_outside: str = ""
    """What is to be known of changes that were tried in it."""
    outside: bool = False
    """Whether it was recorded from outside, where nothing takes its batches over."""
    data_wait_is_bound: bool = False
    """Whether data wait is all between update and forward."""
    names_callbacks: bool = False
    """Whether a framework's trainer has callbacks and loggers that one can name."""
    loader: str = "DataLoader"
    """Takes the loader's options."""
    loader_prefix: str = ""
    """Before the name of each."""

    @property
    def log_rarely(self) -> str:
        """Has values logged so rarely that it costs nothing."""
        return self.logging.format(steps=50)

    def data_loader(self, options: str) -> str:
        """The loader's options as arguments, e.g. `num_workers=2, persistent_workers=True`."""
        named = re.sub(r"\b[a-z_]+=", rf"{self.loader_prefix}\g<0>", options)
        return f"{self.loader}({named})"


_FUSED = "torch.optim.AdamW(parameters, fused=True); Adam, SGD and Adagrad take it too"
_COMPILED = "torch.compile(model)"

LIGHTNING = LoopKind(
    name="lightning",
    title="With Lightning",
    attach="from trainperf.lightning import TrainPerf\n\nL.Trainer(callbacks=[TrainPerf()])",
    audit="TrainPerf(audit_at=20)",
    capture=f"ScheduledProfiler{_SCHEDULE} next to TrainPerf()",
    tokens="TrainPerf(tokens=lambda batch: mask)",
    everything="TrainPerf()",
    measures={
        "data wait": "TrainPerf() or DataWaitMonitor()",
        "h2d": "TrainPerf() or H2DMonitor()",
        "scaler": "TrainPerf() or GradScalerMonitor()",
        "samples": "TrainPerf() or TokenThroughputMonitor()",
        "memory": "TrainPerf() or MemoryMonitor()",
    },
    user_code="a callback",
    wrapped_model="self.trainer.model",
    fully_sharded='Trainer(strategy="fsdp")',
    accumulation="accumulate_grad_batches",
    bf16='Trainer(precision="bf16-mixed")',
    bf16_weights='Trainer(precision="bf16-true")',
    compiled=_COMPILED,
    fused=_FUSED,
    logging="Trainer(log_every_n_steps={steps})",
    names_callbacks=True,
)

PLAIN = LoopKind(
    name="plain",
    title="In a loop of your own",
    attach="""from trainperf.loop import LoopMonitor

with LoopMonitor("runs/a") as monitor:
    for batch in monitor.batches(loader):
        train_on(batch)
        monitor.end_step()""",
    audit="LoopMonitor(audit_at=20)",
    capture=f"LoopMonitor(profile=ScheduledProfile{_SCHEDULE})",
    tokens="LoopMonitor(tokens=lambda batch: mask)",
    everything="monitor.watch(model, optimizer) before the first epoch",
    measures={
        "data wait": "for batch in monitor.batches(loader)",
        "h2d": 'with monitor.phase("h2d"): around the copy of the batch',
        "scaler": "monitor.watch(model, optimizer, scaler)",
        "samples": "for batch in monitor.batches(loader), samples in the first dimension",
        "memory": "monitor.watch(model, optimizer)",
    },
    user_code='monitor.phase("callbacks")',
    wrapped_model="model",
    fully_sharded="torch.distributed.fsdp.fully_shard(model)",
    accumulation="gradient accumulation",
    bf16="torch.autocast(device, dtype=torch.bfloat16)",
    bf16_weights="model.bfloat16()",
    compiled=_COMPILED,
    fused=_FUSED,
    logging="LoopMonitor(log_every_n_steps={steps})",
    unclosed="ended without close()",
    ours="trainperf itself, in end_step()",
    to_be_tried=", and give a LoopMonitor its model and optimizer: watch(model, optimizer)",
    own=True,
)

INFERENCE = replace(
    PLAIN,
    name="inference",
    title="In an inference loop",
    attach="""from trainperf.loop import LoopMonitor

with LoopMonitor("runs/a", kind="inference") as monitor:
    monitor.watch(model)
    for batch in monitor.batches(requests):
        answer(model(batch))
        monitor.end_step()""",
    everything="monitor.watch(model) before the first batch",
    measures={**PLAIN.measures, "memory": "monitor.watch(model)"},
    wrapped_model="model",
    kept="decide on the device (torch.where), and copy the answers of a batch at once",
    to_be_tried="",
    trains=False,
    run_noun="run",
    mark="inference · ",
    work=("forward",),
    samples="requests",
)

HUGGING_FACE = LoopKind(
    name="huggingface",
    title="With a Hugging Face Trainer",
    attach="""from trainperf.huggingface import TrainPerfCallback

Trainer(model, args, callbacks=[TrainPerfCallback()])""",
    audit="TrainPerfCallback(audit_at=20)",
    capture=f"TrainPerfCallback(profile=ScheduledProfile{_SCHEDULE})",
    tokens="TrainPerfCallback(tokens=lambda batch: mask)",
    everything="TrainPerfCallback()",
    measures=dict.fromkeys(
        ("data wait", "h2d", "scaler", "samples", "memory"), "TrainPerfCallback()"
    ),
    user_code="a callback",
    wrapped_model="trainer.model_wrapped",
    fully_sharded="TrainingArguments(fsdp=…)",
    accumulation="gradient_accumulation_steps",
    bf16="TrainingArguments(bf16=True)",
    bf16_weights="from_pretrained(…, dtype=torch.bfloat16)",
    compiled="TrainingArguments(torch_compile=True)",
    fused='TrainingArguments(optim="adamw_torch_fused")',
    logging="TrainingArguments(logging_steps={steps})",
    names_callbacks=True,
    loader="TrainingArguments",
    loader_prefix="dataloader_",
)

_MONITOR = "trainperf.loop.LoopMonitor in the loop, and"

OUTSIDE = replace(
    PLAIN,
    name="outside",
    title="Without a change to the script",
    attach="trainperf run train.py",
    audit="trainperf run --audit-at 20 train.py",
    capture=f"{_MONITOR} {PLAIN.capture}",
    tokens=f"{_MONITOR} {PLAIN.tokens}",
    everything=f"{_MONITOR} {PLAIN.everything}",
    measures={name: f"{_MONITOR} {how}" for name, how in PLAIN.measures.items()},
    user_code=f"{_MONITOR} {PLAIN.user_code}",
    logging="one in {steps} steps, in the loop itself",
    unclosed=HUGGING_FACE.unclosed,
    ours="",
    to_be_tried="",
    names={
        "data_wait": "data wait, or code of the loop between update and forward",
        "other": "the loop's own code between forward and update",
    },
    waits="all from update to forward",
    trials_from_outside="the loop was tried from outside, where nothing takes its batches over: "
    "what changes them was not tried (workers, padding, batches from memory), and no loss was "
    "compared; for those put trainperf.loop.LoopMonitor into the loop, with watch(model, "
    "optimizer), and try again",
    own=False,
    outside=True,
    data_wait_is_bound=True,
)

LOOPS = (LIGHTNING, PLAIN, HUGGING_FACE, OUTSIDE, INFERENCE)
"""Those that can be measured."""

OUTSIDE_WITH_LOADER = replace(
    OUTSIDE, name="outside, loader heard", data_wait_is_bound=False, names={}, waits=""
)
"""Of which it turned out that its waits for a `DataLoader` were heard."""

IMPORTED = replace(
    PLAIN,
    name="imported",
    title="In a log",
    unclosed=HUGGING_FACE.unclosed,
    ours="",
    to_be_tried="",
    own=False,
)
"""One that left a log: advice is that of a plain loop, but nothing of it was bracketed."""


STEP_CLOCK = "step_time"
"""Setting of an imported run: what the time of a step is in its log."""
NOT_TOLD = "unknown"
"""Device of an imported run whose log names none."""


def meeting_place(point: str, config: Mapping[str, object]) -> str:
    """Where in a step ranks wait for each other, in words, e.g. `backward`.

    Args:
        point: The phase in which they do.
        config: The run's configuration.
    """
    if point != "other":
        return point.replace("_", " ")
    gathers = loop_of(config) is HUGGING_FACE and config.get("average_tokens_across_devices")
    return GATHER if gathers else "code outside every phase"


def imported_from(config: Mapping[str, object]) -> str:
    """Format of the log that a run was imported from; empty for one that was recorded."""
    return str(config.get("imported_from") or "")


def loop_of(config: Mapping[str, object]) -> LoopKind:
    """The loop of a run by its configuration; one that names none counts as plain."""
    kinds = (*LOOPS, OUTSIDE_WITH_LOADER, IMPORTED)
    return next((kind for kind in kinds if kind.name == config.get("loop")), PLAIN)
