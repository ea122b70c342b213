"""Fits on one rank with something planted in them, for `scripts.bench.accuracy`."""

import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback, ModelCheckpoint
from lightning.pytorch.strategies import SingleDeviceStrategy
from torch.utils.data import DataLoader, Dataset

from scripts.bench.harness import quiet
from scripts.bench.truth import Sleeper, TruthCase, TruthRun, duration, independent_ns, recorded
from trainperf.core.phases import Gap, Phase
from trainperf.lightning import TrainPerf


Act = Callable[[], object]
Batch = torch.Tensor | dict[str, torch.Tensor]


def _awake() -> None:
    pass


class Model(pl.LightningModule):
    """A small layer, and places in its step where something can be planted."""

    def __init__(self, *, fused: bool = False) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 16)
        self.fused = fused
        self.in_forward: Act = _awake
        self.in_backward: Act = _awake
        self.in_optimizer: Act = _awake
        self.in_validation: Act = _awake

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        """A loss that depends on every parameter."""
        del batch_idx
        data = batch["x"] if isinstance(batch, dict) else batch
        loss: torch.Tensor = self.layer(data).pow(2).mean()
        self.in_forward()
        return loss

    def backward(self, loss: torch.Tensor) -> None:
        """Lightning's, and what is planted."""
        loss.backward()  # type: ignore[no-untyped-call]
        self.in_backward()

    def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
        """Takes as long as what is planted."""
        del batch, batch_idx
        self.in_validation()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """SGD, and what is planted after its step."""
        optimizer = torch.optim.SGD(self.parameters(), lr=1e-3, fused=self.fused or None)
        optimizer.register_step_post_hook(self._stepped)
        return optimizer

    def _stepped(self, *_: object) -> None:
        self.in_optimizer()


class PlantedSamples(Dataset[torch.Tensor]):
    """Takes as long as what is planted to make a sample."""

    def __init__(self, number: int, act: Act = _awake) -> None:
        self.number = number
        self.act = act

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, index: int) -> torch.Tensor:
        self.act()
        return torch.ones(16)


class ClockedLoader(DataLoader[torch.Tensor]):
    """Knows by the independent clock how long the loop was blocked in every fetch."""

    blocked_ns: list[int]

    def __iter__(self) -> Iterator[torch.Tensor]:  # type: ignore[override]
        self.blocked_ns = []
        batches = super().__iter__()
        while True:
            begun = independent_ns()
            try:
                batch = next(batches)
            except StopIteration:
                return
            self.blocked_ns.append(independent_ns() - begun)
            yield batch


class At(Callback):
    """Does something at one hook of a callback."""

    def __init__(self, hook: str, act: Act) -> None:
        def at_hook(*_: object, stage: str = "") -> None:
            del stage  # `setup` is told of it by name
            act()

        setattr(self, hook, at_hook)


class BetweenHooks(SingleDeviceStrategy):
    """Does something where no phase is bracketed, in the framework's own code."""

    act: Act = staticmethod(_awake)

    def on_train_batch_start(self, batch: object, batch_idx: int) -> None:
        """Between the callbacks' hook of that name and the forward."""
        del batch, batch_idx
        self.act()


@dataclass(slots=True, kw_only=True)
class Fit:
    """What to train with what."""

    model: pl.LightningModule = field(default_factory=Model)
    loader: object = None
    callbacks: list[Callback] = field(default_factory=list)
    options: dict[str, Any] = field(default_factory=dict)
    validation: object = None

    def run(self) -> TruthRun:
        """Fit with `TrainPerf` attached and read the run back."""
        usual: dict[str, Any] = {
            "accelerator": "cpu",
            "max_epochs": 1,
            "logger": False,
            "enable_checkpointing": False,
            "enable_progress_bar": False,
            "enable_model_summary": False,
            "num_sanity_val_steps": 0,
        }
        with tempfile.TemporaryDirectory() as place, quiet():
            trainer = pl.Trainer(
                **{**usual, **self.options},
                callbacks=[*self.callbacks, TrainPerf()],
                default_root_dir=place,
            )
            trainer.fit(self.model, self.loader, self.validation)
            return recorded(Path(place) / "trainperf")


def steps(number: int) -> "DataLoader[torch.Tensor]":
    """So many batches of one ready-made sample."""
    return DataLoader(PlantedSamples(number))


# -- phases -------------------------------------------------------------------------------------


def sleeping_loader(events: int) -> TruthCase:
    """A data set that sleeps, read in the training process."""
    sleeper = Sleeper()
    result = Fit(loader=DataLoader(PlantedSamples(events, sleeper))).run()
    return _phase("loader, no workers", Phase.DATA_WAIT, sleeper, result)


def sleeping_workers(events: int) -> TruthCase:
    """A data set that sleeps in two workers: what the loop waits is what they cannot hide."""
    loader = ClockedLoader(PlantedSamples(events, Sleeper(0.010, 0.060)), num_workers=2)
    result = Fit(loader=loader).run()
    return duration(
        "loader, 2 workers",
        Phase.DATA_WAIT.label,
        loader.blocked_ns,
        result.phase_ns(Phase.DATA_WAIT),
        result.other_phases_ns(Phase.DATA_WAIT),
    )


def sleeping_callback(hook: str) -> Callable[[int], TruthCase]:
    """A callback that sleeps at one hook."""

    def case(events: int) -> TruthCase:
        sleeper = Sleeper()
        result = Fit(loader=steps(events), callbacks=[At(hook, sleeper)]).run()
        return _phase(f"callback, {hook}", Phase.CALLBACKS, sleeper, result)

    return case


def sleeping_part(attribute: str, phase: Phase) -> Callable[[int], TruthCase]:
    """A module that sleeps in one part of its step."""

    def case(events: int) -> TruthCase:
        sleeper, model = Sleeper(), Model()
        setattr(model, attribute, sleeper)
        result = Fit(model=model, loader=steps(events)).run()
        return _phase(phase.label, phase, sleeper, result)

    return case


def sleeping_framework(events: int) -> TruthCase:
    """A sleep that no phase brackets."""
    sleeper, strategy = Sleeper(), BetweenHooks(device="cpu")
    strategy.act = sleeper
    options = {"strategy": strategy, "accelerator": "auto"}
    result = Fit(loader=steps(events), options=options).run()
    return _phase("where no phase is", Phase.OTHER, sleeper, result)


def _phase(name: str, phase: Phase, sleeper: Sleeper, result: TruthRun) -> TruthCase:
    return duration(
        name,
        phase.label,
        sleeper.slept_ns,
        result.phase_ns(phase),
        result.other_phases_ns(phase),
    )


# -- gaps ---------------------------------------------------------------------------------------


def sleeping_validation(events: int) -> TruthCase:
    """A validation after every second step."""
    sleeper, model = Sleeper(0.005, 0.050), Model()
    model.in_validation = sleeper
    result = Fit(
        model=model,
        loader=steps(2 * events),
        validation=DataLoader(PlantedSamples(1)),
        options={"val_check_interval": 2},
    ).run()
    return _gap("validation", Gap.VALIDATION, sleeper, result)


def sleeping_checkpoint(events: int) -> TruthCase:
    """A checkpoint after every second step."""
    sleeper = Sleeper(0.005, 0.050)
    saving = ModelCheckpoint(every_n_train_steps=2, save_top_k=-1)
    result = Fit(
        loader=steps(2 * events),
        callbacks=[At("on_save_checkpoint", sleeper), saving],
        options={"enable_checkpointing": True},
    ).run()
    return _gap("checkpoint", Gap.CHECKPOINT, sleeper, result)


def _gap(name: str, gap: Gap, sleeper: Sleeper, result: TruthRun) -> TruthCase:
    return duration(name, gap.label, sleeper.slept_ns, result.gap_ns(gap))
