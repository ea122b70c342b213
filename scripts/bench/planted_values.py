"""Fits whose counts, sizes and total are known in advance, for `scripts.bench.accuracy`."""

import itertools
from collections.abc import Callable

import lightning.pytorch as pl
import numpy as np
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins.precision import MixedPrecision
from torch.utils.data import DataLoader

from scripts.bench.planted import At, Fit, Model, PlantedSamples, steps
from scripts.bench.truth import TruthCase, exact, independent_ns, roughly


MIB = 1 << 20


def overflows(*, fused: bool) -> Callable[[int], list[TruthCase]]:
    """Infinite gradients in every fifth step."""

    def case(events: int) -> list[TruthCase]:
        model, count = Model(fused=fused), itertools.count(1)

        def poison() -> None:
            if next(count) % 5 == 0:
                for parameter in model.parameters():
                    if parameter.grad is not None:
                        parameter.grad.fill_(float("inf"))

        model.in_backward = poison
        # A scale at which nothing overflows but what was planted.
        plugin = MixedPrecision("16-mixed", "cpu", torch.amp.GradScaler("cpu", init_scale=2.0**10))
        result = Fit(model=model, loader=steps(events), options={"plugins": [plugin]}).run()
        kind = "fused" if fused else "non-fused"
        lost, tried = sum(result.fact("overflows")), sum(result.fact("attempts"))
        name = f"infinities, {kind} optimizer"
        return [
            exact(name, "overflows", "1", events // 5, lost),
            exact(name, "overflow_rate", "1", (events // 5) / events, lost / tried),
        ]

    return case


class _Masked(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    """Samples of which so many tokens count."""

    def __init__(self, lengths: list[int], width: int) -> None:
        self.lengths = lengths
        self.width = width

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        mask = torch.zeros(self.width, dtype=torch.int64)
        mask[: self.lengths[index]] = 1
        return {"x": torch.ones(16), "attention_mask": mask}


def masks(events: int) -> list[TruthCase]:
    """Masks of random, known length in batches of four."""
    lengths = np.random.default_rng(0).integers(1, 129, 4 * events).tolist()
    result = Fit(loader=DataLoader(_Masked(lengths, 128), batch_size=4)).run()
    kept, every = sum(result.fact("tokens_effective")), sum(result.fact("tokens_padded"))
    return [
        exact("masks", "tokens_effective", "1", sum(lengths), kept),
        exact("masks", "tokens_padded", "1", 128 * len(lengths), every),
        exact("masks", "samples", "1", len(lengths), sum(result.fact("samples"))),
    ]


class _Grows(Callback):
    """Allocates once, in the middle, and writes to every page."""

    def __init__(self, at_step: int, size: int) -> None:
        self.at_step = at_step
        self.size = size
        self.held: torch.Tensor | None = None

    def on_train_batch_end(self, trainer: pl.Trainer, *_: object) -> None:
        """Grow when it is time."""
        if trainer.global_step == self.at_step:
            self.held = torch.ones(self.size, dtype=torch.uint8)


def memory(events: int) -> list[TruthCase]:
    """256 MiB that are allocated in the middle of the fit and kept."""
    size, model = 256 * MIB, Model()
    # Memory is sampled four times a second: steps of 30 ms, so that some fall on either side.
    model.in_forward = _doze
    grows = _Grows(events // 2, size)
    result = Fit(model=model, loader=steps(events), callbacks=[grows]).run()
    resident = result.fact("resident_bytes")
    name = f"memory, {size // MIB} MiB kept"
    return [roughly(name, "resident_bytes", "B", size, resident[-1] - resident[0])]


def _doze() -> None:
    until = independent_ns() + 30_000_000
    while independent_ns() < until:
        pass


def whole_fit(events: int) -> list[TruthCase]:
    """Steps and gaps against a stopwatch around `Trainer.fit`, epochs and validation included."""
    marks: list[int] = []
    model = Model()
    fit = Fit(
        model=model,
        loader=steps(events),
        validation=DataLoader(PlantedSamples(4)),
        options={"max_epochs": 3},
        callbacks=[
            At("setup", lambda: marks.append(independent_ns())),
            At("on_train_end", lambda: marks.append(independent_ns())),
        ],
    )
    result = fit.run()
    attributed = sum(result.ledger_ns().values())
    end_ns = result.end.fit_ns if result.end is not None else 0
    shutdown = result.ledger_ns()["shutdown"]
    return [
        exact("fit, steps and gaps in it", "fit_ns", "1", end_ns, attributed),
        roughly(
            "fit, setup to on_train_end",
            "steps + gaps",
            "s",
            (marks[-1] - marks[0]) / 1e9,
            (attributed - shutdown) / 1e9,
        ),
    ]
