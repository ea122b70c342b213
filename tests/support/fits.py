"""Real fits for tests: tiny models, sleeps that carry a clock of their own, runs read back."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import Logger
from support import loops
from support.loops import Written

from trainperf.core.machine.clocks import HostClock, monotonic_ns
from trainperf.core.phases import PHASES, Gap, Phase, Tag
from trainperf.lightning import TrainPerf, measurement
from trainperf.testing import FakeClock


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
    """Sleeps a short or a long while, and knows how long by a clock of its own."""

    def __init__(self, *lengths_s: float) -> None:
        self.lengths_s = lengths_s or (SHORT_S, SHORT_S, LONG_S, LONG_S)
        self.slept_ns: list[int] = []

    def __call__(self) -> None:
        """Sleep for the length whose turn it is."""
        length_s = self.lengths_s[len(self.slept_ns) % len(self.lengths_s)]
        begun = time.perf_counter_ns()
        time.sleep(length_s)
        self.slept_ns.append(time.perf_counter_ns() - begun)


CLOCK = FakeClock()
"""Of fits in which nothing takes any time but what a test plants."""


class Pause(Sleeper):
    """Lets that clock go on instead."""

    def __call__(self) -> None:
        """By the length whose turn it is."""
        length_s = self.lengths_s[len(self.slept_ns) % len(self.lengths_s)]
        self.slept_ns.append(round(length_s * 1e9))
        CLOCK.sleep(length_s)


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
        return self.layer(batch["x"] if isinstance(batch, dict) else batch).mean()

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
    clock: HostClock = monotonic_ns,
    **options: Any,
) -> Ran:
    """Train under `TrainPerf` and read the run back; it must tile the fit."""
    root = Path(tempfile.mkdtemp(dir=tmp_path))
    perf = TrainPerf(report=False, dirpath=str(root))
    with patch.object(measurement, "Fit", loops.on_clock(clock)):
        trainer(root, perf, *callbacks, **options).fit(model, loader)
    ran = read(root / "trainperf")
    assert_tiles(ran)
    return ran


def planted(
    tmp_path: Path,
    model: pl.LightningModule,
    loader: object,
    *callbacks: Callback,
    **options: Any,
) -> Ran:
    """As `fit`, where nothing takes any time but a `Pause`."""
    return fit(tmp_path, model, loader, *callbacks, clock=CLOCK, **options)


def assert_tiles(ran: Ran) -> None:
    """Steps and gaps fill the fit, to the nanosecond; no part of ours was switched off."""
    assert ran.totals.faults == {}
    filled = sum(step.wall_ns for step in ran.steps) + sum(gap.duration_ns for gap in ran.gaps)
    assert filled == ran.end.fit_ns
    assert [step.index for step in ran.steps] == list(range(ran.end.steps))


def assert_comes_back(ran: Ran, phase: Phase, planted_ns: Sequence[int]) -> None:
    """In every step what was planted is in this phase, and nothing in any other."""
    for each in PHASES:
        expected = list(planted_ns) if each is phase else [0] * len(planted_ns)
        assert ran.phase_ns(each) == expected, each.label
