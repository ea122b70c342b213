"""Real fits for tests: tiny models, sleeps that carry a clock of their own, runs read back."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from support import loops
from support.loops import Written

from trainperf.core.phases import PHASES, Gap, Phase, Tag
from trainperf.lightning import TrainPerf


MS = 1_000_000
SHORT_S, LONG_S = 0.010, 0.020

QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "num_sanity_val_steps": 0,
    "max_epochs": 1,
}
"""A Trainer that does nothing but train."""


class Sleeper:
    """Sleeps a short or a long while, and knows how long by a clock of its own.

    Both, because what runs after a sleep finds cold caches: that cost is the same after either
    (from some ten milliseconds on), so the difference between them is the sleeping alone.  Twice
    each, because a step also feels the sleep of the one before.
    """

    def __init__(self, *lengths_s: float) -> None:
        self.lengths_s = lengths_s or (SHORT_S, SHORT_S, LONG_S, LONG_S)
        self.slept_ns: list[int] = []

    def __call__(self) -> None:
        """Sleep for the length whose turn it is."""
        length_s = self.lengths_s[len(self.slept_ns) % len(self.lengths_s)]
        begun = time.perf_counter_ns()
        time.sleep(length_s)
        self.slept_ns.append(time.perf_counter_ns() - begun)


def awake() -> None:
    """A sleeper that never sleeps."""


class Model(pl.LightningModule):
    """A linear layer; places in the step that a test may slow down are attributes."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
        self.in_forward: Callable[[], None] = awake

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        """The mean of the layer's output."""
        loss = self.loss(batch)
        # Last, because what runs after a sleep finds cold caches and is slower for it.
        self.in_forward()
        return loss

    def loss(self, batch: Any) -> torch.Tensor:
        """A scalar that depends on every parameter."""
        data = batch["x"] if isinstance(batch, dict) else batch
        loss: torch.Tensor = self.layer(data).mean()
        return loss

    def configure_optimizers(self) -> Any:
        """Plain SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Validated(Model):
    """A model that is also validated."""

    def __init__(self) -> None:
        super().__init__()
        self.in_validation: Callable[[], None] = awake

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Only takes time."""
        self.in_validation()


class Loader:
    """Yields *batches* ready-made batches and may be slow at it; knows its length."""

    def __init__(
        self, batches: int, *, slow: Callable[[], None] = awake, batch: Any = None
    ) -> None:
        self.batches = batches
        self.slow = slow
        self.batch = torch.ones(2, 4) if batch is None else batch

    def __len__(self) -> int:
        return self.batches

    def __iter__(self) -> Iterator[Any]:
        for _ in range(self.batches):
            self.slow()
            yield self.batch


class Stream(torch.utils.data.IterableDataset[torch.Tensor]):
    """An iterable of unknown length."""

    def __init__(self, batches: int, *, slow: Callable[[], None] = awake) -> None:
        self.batches = batches
        self.slow = slow

    def __iter__(self) -> Iterator[torch.Tensor]:
        for _ in range(self.batches):
            self.slow()
            yield torch.ones(2, 4)


class OwnLogger(Logger):
    """A logger of the user's that keeps nothing."""

    name = "own"
    version = "0"

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Nothing."""

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """Nothing."""


class At(Callback):
    """Calls a function at one hook, e.g. `At("on_train_batch_end", sleeper)`."""

    def __init__(self, hook: str, act: Callable[[], None]) -> None:
        def at_hook(trainer: object, module: object, *args: object) -> None:
            act()

        setattr(self, hook, at_hook)


class Ran(Written):
    """A record file read back, as fits under Lightning are looked at."""

    def phase_ns(self, phase: Phase) -> list[int]:
        """Host time of every step in a phase."""
        return [step.host_ns[phase] for step in self.steps]

    def fact(self, name: str) -> list[int | float | None]:
        """A fact of every step."""
        return [step.facts[name] for step in self.steps]

    def tagged(self, tag: Tag) -> list[int]:
        """Numbers of the steps with a tag."""
        return [step.index for step in self.steps if step.tags & tag]

    def micro_batches(self) -> list[int]:
        """Forward-backward passes of every step."""
        return [step.micro_batches for step in self.steps]

    def gap_ns(self, gap: Gap) -> int:
        """All time in gaps of one kind."""
        return sum(record.duration_ns for record in self.gaps if record.gap == gap.label)

    def gap_places(self, gap: Gap) -> list[int]:
        """After which steps such gaps lie."""
        return [record.after_step for record in self.gaps if record.gap == gap.label]


def read(run: Path, rank: int = 0) -> Ran:
    """Read the record file of one rank; every line must be sound."""
    written = loops.read(run / f"steps-rank{rank}.jsonl")
    return Ran(written.info, written.steps, written.entries)


def trainer(tmp_path: Path, *callbacks: Callback, **options: Any) -> pl.Trainer:
    """A quiet Trainer with these callbacks and nothing else."""
    chosen = {**QUIET, "default_root_dir": tmp_path, "callbacks": list(callbacks), **options}
    return pl.Trainer(**chosen)


def fit(
    tmp_path: Path,
    model: pl.LightningModule,
    loader: object,
    *callbacks: Callback,
    **options: Any,
) -> Ran:
    """Train under `TrainPerf` and read the run back; it must tile the fit."""
    root = Path(tempfile.mkdtemp(dir=tmp_path))
    trainer(root, TrainPerf(report=False, dirpath=str(root)), *callbacks, **options).fit(
        model, loader
    )
    ran = read(root / "trainperf")
    assert_tiles(ran)
    return ran


def assert_tiles(ran: Ran) -> None:
    """Steps and gaps fill the fit, to the nanosecond; no part of ours was switched off."""
    assert ran.totals.faults == {}
    filled = sum(step.wall_ns for step in ran.steps) + sum(gap.duration_ns for gap in ran.gaps)
    assert filled == ran.end.fit_ns
    assert [step.index for step in ran.steps] == list(range(ran.end.steps))


def assert_comes_back(spent_ns: Sequence[int], slept_ns: Sequence[int]) -> None:
    """A phase holds the planted sleeps: none is cut short, and the error is 1 % or 50 µs.

    The error is by how much the phase is longer than the sleep where that was long, beyond what
    it is where it was short.  A fifth of what else runs in the phase is allowed: a host that lends
    out its processors changes their speed by more.
    """
    assert len(spent_ns) == len(slept_ns)
    rest = [spent - slept for spent, slept in zip(spent_ns, slept_ns, strict=True)]
    assert min(rest) >= 0
    allowed_ns = max(50_000, 0.01 * max(slept_ns), 0.2 * median(rest))
    assert abs(_excess(rest)) <= allowed_ns, f"beside the sleeps: {rest}"


def assert_below(limit_ns: float, *spent_ns: int) -> None:
    """None of these durations holds a planted sleep of *limit_ns*."""
    assert max(spent_ns) < limit_ns


def assert_nowhere_else(ran: Ran, slept_ns: Sequence[int], *, phase: Phase) -> None:
    """No other phase is longer in the steps that slept long."""
    for other in PHASES:
        longer = _excess(ran.phase_ns(other)) > 0.05 * _excess(slept_ns)
        assert other is phase or not longer, f"{other.label} is longer too"


def _excess(values: Sequence[int]) -> float:
    """How much more it is in the steps with a long sleep than in those with a short one.

    Compared are steps that come after the same length: a `Sleeper` goes short, short, long, long.
    Of each kind the least, for whoever shares the core only ever adds.
    """
    after_long = min(values[3::4]) - min(values[0::4])
    after_short = min(values[2::4]) - min(values[1::4])
    return (after_long + after_short) / 2
