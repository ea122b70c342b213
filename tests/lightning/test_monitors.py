"""Each measurement stands alone, and any set of them shares one recorder."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from support.fits import Loader, Model, OwnLogger, Ran, fit, read, trainer

from trainperf.core.steps.records import FACTS
from trainperf.lightning import (
    AllReduceTailMonitor,
    DataWaitMonitor,
    GradScalerMonitor,
    H2DMonitor,
    MemoryMonitor,
    StepTimeMonitor,
    TokenThroughputMonitor,
    TrainPerf,
)
from trainperf.lightning.measurement import Measurement
from trainperf.meters import METERS
from trainperf.recording.probes.selection import EVERYTHING, FACTS_OF, NOT_REQUESTED


MASK = torch.tensor([[1, 1, 1, 0], [1, 1, 1, 1]])
BATCH = {"x": torch.ones(2, 4), "attention_mask": MASK}

ON_A_CPU = {
    DataWaitMonitor: set(),
    H2DMonitor: set(),
    StepTimeMonitor: {"gc_ns", "recompiles", "waited_ns"},
    GradScalerMonitor: set(),
    TokenThroughputMonitor: {"samples", "tokens_effective", "tokens_padded", "cache_keys"},
    AllReduceTailMonitor: set(),
    MemoryMonitor: {"resident_bytes", "owned_bytes"},
}
"""Facts that each feeds on one rank of a CPU, without a GradScaler."""


class Keeping(OwnLogger):
    """Keeps what it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.told: dict[str, list[float]] = {}
        self.steps: list[int | None] = []

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Keep our own."""
        for tag, value in metrics.items():
            if tag.startswith("trainperf/"):
                self.told.setdefault(tag.removeprefix("trainperf/"), []).append(value)
                self.steps.append(step)


def measured(tmp_path: Path, *callbacks: Measurement) -> tuple[Ran, Keeping]:
    """Thirty steps under these callbacks: the run, and what the logger was told."""
    keeping = Keeping()
    training = trainer(tmp_path, *callbacks, logger=keeping)
    training.fit(Model(), Loader(30, batch=BATCH))
    (run,) = tmp_path.rglob("steps-rank0.jsonl")
    return read(run.parent), keeping


@pytest.mark.parametrize("kind", ON_A_CPU)
def test_a_monitor_alone_feeds_its_facts_and_logs_its_readings(
    kind: type[Measurement], tmp_path: Path
) -> None:
    """Nothing else is recorded, and everything else says that it was not asked for."""
    ran, keeping = measured(tmp_path, kind())
    (measure,) = kind.measures
    assert set(ran.info.columns) == ON_A_CPU[kind] | {"overhead_ns"}
    shown = {meter.name for meter in METERS if meter.measure is measure}
    assert set(keeping.told) <= shown | {"overhead_s"}
    others = {fact for other in EVERYTHING - {measure} for fact in FACTS_OF[other]}
    assert all(ran.info.reasons[fact] == NOT_REQUESTED for fact in others)
    for fact in set(FACTS_OF[measure]) - set(ran.info.columns) - {"data_stall_ns"}:
        assert ran.info.reasons[fact].startswith("not applicable")
    assert len(ran.steps) == 30


def test_all_monitors_together_measure_what_trainperf_does(tmp_path: Path) -> None:
    """Into one file; the loss, which no monitor asks for, is left out."""
    together, _ = measured(tmp_path / "a", *(kind() for kind in ON_A_CPU))
    everything, _ = measured(tmp_path / "b", TrainPerf())
    assert set(together.info.columns) == set(everything.info.columns) - {"loss"}
    assert len(list((tmp_path / "a").rglob("steps-rank*.jsonl"))) == 1


def test_every_fact_of_a_full_run_is_measured_or_has_a_reason(tmp_path: Path) -> None:
    """Never silence: what a report cannot show, it can explain."""
    ran, _ = measured(tmp_path, TrainPerf())
    told = {**ran.info.reasons, **ran.totals.reasons}
    # `data_stall_ns` is data wait on a CPU, `mean_of_steps` of logs, `pace_ns` of earlier versions.
    elsewhere = {"data_stall_ns", "mean_of_steps", "pace_ns"}
    assert set(FACTS) - set(ran.info.columns) - set(told) - elsewhere == set()


def test_readings_are_logged_over_the_users_own_steps(tmp_path: Path) -> None:
    """As Python floats, at the trainer's interval, at `global_step`."""
    keeping = Keeping()
    training = trainer(tmp_path, TrainPerf(report=False, dirpath=str(tmp_path)), logger=keeping)
    training.fit(Model(), Loader(130, batch=BATCH))
    assert {type(value) for values in keeping.told.values() for value in values} == {float}
    assert keeping.steps[0] == 51  # fifty steps are closed when the next has run
    assert keeping.steps[-1] == 130
    assert set(keeping.told["padding_fraction"]) == {0.125}


@pytest.mark.parametrize(
    ("batch", "tokens", "note"),
    [
        (BATCH, None, "attention_mask"),
        ({"x": torch.ones(2, 4), "labels": torch.where(MASK > 0, 5, -100)}, None, "labels != -100"),
        (torch.ones(2, 4), lambda batch: MASK, "the user's mask function"),
        (BATCH, lambda batch: MASK.bool(), "the user's mask function"),
    ],
)
def test_known_masks_give_known_tokens(batch: Any, tokens: Any, note: str, tmp_path: Path) -> None:
    """Seven of eight, twice a step of two micro-batches, and the definition used is noted."""
    perf = TrainPerf(report=False, tokens=tokens)
    training = trainer(tmp_path, perf, accumulate_grad_batches=2)
    training.fit(Model(), Loader(5, batch=batch))
    ran = read(tmp_path / "trainperf")
    assert ran.fact("tokens_effective") == [14, 14, 7]
    assert ran.fact("tokens_padded") == [16, 16, 8]
    assert ran.fact("samples") == [4, 4, 2]
    assert ran.totals.notes["tokens"] == note
    assert ran.totals.sequence_lengths == {3: 5, 4: 5}


def test_a_mask_function_that_raises_costs_its_own_measurement_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Steps before keep their tokens; samples, loss and times go on; one warning."""
    calls = iter(range(100))

    def mask(batch: Any) -> torch.Tensor:
        if next(calls) >= 3:
            raise ValueError("planted")
        return MASK

    training = trainer(tmp_path, TrainPerf(report=False, tokens=mask))
    with caplog.at_level(logging.WARNING, "trainperf"):
        training.fit(Model(), Loader(6, batch=BATCH))
    ran = read(tmp_path / "trainperf")
    assert training.global_step == 6
    assert ran.fact("tokens_effective") == [7, 7, 7, None, None, None]
    assert ran.fact("samples") == [2] * 6
    assert None not in ran.fact("loss")
    assert ran.totals.faults == {"tokens": "ValueError: planted"}
    assert len(caplog.records) == 1


def test_a_model_whose_size_is_not_known_yet_is_measured(tmp_path: Path) -> None:
    """Lazy modules have no parameters to count before their first forward."""

    class Lazy(Model):
        def __init__(self) -> None:
            super().__init__()
            self.lazy = torch.nn.LazyLinear(3)

        def loss(self, batch: Any) -> torch.Tensor:
            return super().loss(batch) + self.lazy(batch).sum()

    ran = fit(tmp_path, Lazy(), Loader(3))
    assert ran.info.config["parameters"] is None
    assert ran.micro_batches() == [1] * 3


class Extended(TrainPerf):
    """A user's subclass, with hooks that we need and hooks that we silence."""

    def __init__(self, path: Path) -> None:
        super().__init__(dirpath=str(path), report=False)
        self.heard: list[str] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, *batch: Any) -> None:
        """One that we listen to as well."""
        assert outputs is not None
        assert len(batch) == 2
        self.heard.append("batch")

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
        """One that we do without."""
        self.heard.append("epoch")


def test_hooks_of_a_subclass_are_called_beside_ours(tmp_path: Path) -> None:
    """Once each; and the fit is measured as without them."""
    callback = Extended(tmp_path)
    trainer(tmp_path, callback).fit(Model(), Loader(3))

    assert callback.heard == ["batch"] * 3 + ["epoch"]
    assert len(read(tmp_path / "trainperf").steps) == 3
