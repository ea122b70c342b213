"""Bench of change points and drifts on recorded healthy fits of unlike kinds: none may be named.

Trains each kind for some seconds on a machine as it is, every second one next to a process that
takes a processor in bursts, and judges what was recorded, also without the floor of half a minute:
`python -m scripts.bench.healthy [NAME…] [--seconds N] [--json FILE] [--levels FILE]`.  With
`--judge FILE` nothing is trained: the levels in it are judged again, as they are and with a change.
"""

import argparse
import json
import logging
import multiprocessing
import random
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import numpy as np
import numpy.typing as npt
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from scripts.bench.harness import arguments, machine_line, table, write_json
from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.job_block import JobBlock
from trainperf.analysis.run.replay import Replay
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary import long_term
from trainperf.analysis.summary.long_term import COLUMNS, LEAST_STEPS, LevelsFold, joined, walls_s
from trainperf.analysis.summary.schema import RunChange, Summary
from trainperf.core.arrays import Column
from trainperf.lightning import TrainPerf
from trainperf.loop import LoopMonitor


NAMES = ("slower_since",)
FLOOR_S = 2.0
"""In place of the half minute that a change must last: the statistics alone are judged."""
MOST_PIECES = 128
"""Of a run, in the file of levels."""

QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "num_sanity_val_steps": 0,
    "max_epochs": -1,
}

Kind = Callable[[Path, float], None]


class Net(pl.LightningModule):
    """A network, and the loss that it is trained with."""

    def __init__(self, net: nn.Module, rate: float = 1e-3) -> None:
        super().__init__()
        self.net, self.rate = net, rate

    def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
        """Cross entropy of the labels."""
        inputs, labels = batch
        outputs = self.net(inputs)
        loss = nn.functional.cross_entropy(outputs.flatten(0, -2), labels.flatten())
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], number: int) -> None:
        """The same, without an update."""
        self.training_step(batch, number)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), self.rate)


class Language(nn.Module):
    """Two layers of a transformer over tokens."""

    def __init__(self, width: int = 32) -> None:
        super().__init__()
        self.embed = nn.Embedding(200, width)
        layer = nn.TransformerEncoderLayer(width, 4, 2 * width, batch_first=True, dropout=0.0)
        self.layers, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(width, 200)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token."""
        outputs: Tensor = self.head(self.layers(self.embed(tokens)))
        return outputs


class Recurrent(nn.Module):
    """An LSTM over tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.lstm = nn.Embedding(200, 64), nn.LSTM(64, 64, batch_first=True)
        self.head = nn.Linear(64, 200)

    def forward(self, tokens: Tensor) -> Tensor:
        """Logits of the next token."""
        outputs: Tensor = self.head(self.lstm(self.embed(tokens))[0])
        return outputs


class Sentences(IterableDataset[Any]):
    """Batches of random tokens, each as long as its longest sentence."""

    def __init__(self, shortest: int, longest: int, rows: int = 4) -> None:
        super().__init__()
        self.lengths, self.rows = (shortest, longest), rows

    def __iter__(self) -> Iterator[Any]:
        draws = torch.Generator().manual_seed(0)
        while True:
            length = int(torch.randint(*self.lengths, (self.rows,), generator=draws).max())
            tokens = torch.randint(0, 200, (self.rows, length), generator=draws)
            yield tokens, tokens


class Pictures(Dataset[tuple[Tensor, Tensor]]):
    """Pictures that are made when they are asked for, some with more work than others."""

    def __init__(self, number: int = 640, work: int = 0) -> None:
        self.number, self.work = number, work
        self.pictures = np.random.default_rng(0).random((64, 3, 32, 32), dtype=np.float32)

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, place: int) -> tuple[Tensor, Tensor]:
        picture = self.pictures[place % 64]
        for _ in range(random.randint(0, self.work)):  # noqa: S311 no secret
            picture = np.sort(picture, axis=-1)
        return torch.from_numpy(picture), torch.tensor([place % 10])


def convolutions() -> nn.Module:
    """A small network over pictures, with a place for each label."""
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(4),
        nn.Flatten(),
        nn.Linear(128, 10),
        nn.Unflatten(1, (1, 10)),
    )


def fit(
    out: Path,
    seconds: float,
    net: nn.Module,
    data: "DataLoader[Any]",
    **options: Any,  # noqa: ANN401 the Trainer's
) -> None:
    """A Lightning fit of that long."""
    measured = TrainPerf(dirpath=str(out / "trainperf"), report=False)
    callbacks = [*options.pop("callbacks", []), measured]
    validation = options.pop("validation", None)
    trainer = pl.Trainer(
        **{**QUIET, "default_root_dir": out, "max_time": {"seconds": round(seconds)}, **options},
        callbacks=callbacks,
    )
    trainer.fit(Net(net), data, validation)


def plain_loop(out: Path, seconds: float) -> None:
    """A loop of one's own: SGD with a cosine schedule."""
    net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10))
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10_000)
    rows: Any = [(torch.randn(256), index % 10) for index in range(4_096)]
    loader: DataLoader[Any] = DataLoader(rows, batch_size=64, shuffle=True)
    until = time.monotonic() + seconds
    monitor = LoopMonitor(dirpath=str(out / "trainperf"), report=False)
    while time.monotonic() < until:
        for inputs, labels in monitor.batches(loader):
            with monitor.phase("forward"):
                loss = nn.functional.cross_entropy(net(inputs), labels)
            with monitor.phase("backward"):
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
            with monitor.phase("optimizer"):
                optimizer.step()
                schedule.step()
            monitor.end_step()
    monitor.close()


def small(rows: int = 16) -> "DataLoader[Any]":
    """Rows that cost nothing to load."""
    data = [(torch.randn(1, 64), torch.tensor([index % 10])) for index in range(2_048)]
    whole: Any = data
    return DataLoader(whole, batch_size=rows)


def perceptron() -> nn.Module:
    """Two layers."""
    return nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


KINDS: dict[str, Kind] = {
    "perceptron": lambda out, s: fit(out, s, perceptron(), small()),
    "convolutions": lambda out, s: fit(
        out, s, convolutions(), DataLoader(Pictures(), batch_size=16)
    ),
    "sentences padded": lambda out, s: fit(
        out, s, Language(), DataLoader(Sentences(8, 64), batch_size=None)
    ),
    "bf16, many shapes": lambda out, s: fit(
        out,
        s,
        Language(),
        DataLoader(Sentences(16, 48), batch_size=None),
        precision="bf16-mixed",
    ),
    "LSTM": lambda out, s: fit(out, s, Recurrent(), DataLoader(Sentences(16, 48), batch_size=None)),
    "one worker": lambda out, s: fit(
        out,
        s,
        convolutions(),
        DataLoader(Pictures(work=20), batch_size=16, num_workers=1, persistent_workers=True),
    ),
    "uneven pictures": lambda out, s: fit(
        out, s, convolutions(), DataLoader(Pictures(work=60), batch_size=16)
    ),
    "checkpoints, validation": lambda out, s: fit(
        out,
        s,
        perceptron(),
        small(),
        validation=small(64),
        enable_checkpointing=True,
        callbacks=[ModelCheckpoint(dirpath=out / "saved", every_n_train_steps=200)],
    ),
    "accumulation": lambda out, s: fit(
        out,
        s,
        Language(),
        DataLoader(Sentences(8, 64), batch_size=None),
        accumulate_grad_batches=2,
    ),
    "CSV log": lambda out, s: fit(
        out, s, perceptron(), small(), logger=CSVLogger(out), log_every_n_steps=10
    ),
    "TensorBoard log": lambda out, s: fit(
        out, s, perceptron(), small(), logger=TensorBoardLogger(out), log_every_n_steps=10
    ),
    "short epochs": lambda out, s: fit(
        out, s, convolutions(), DataLoader(Pictures(96), batch_size=16, shuffle=True)
    ),
    "loop of one's own": plain_loop,
    "large batches": lambda out, s: fit(out, s, perceptron(), small(256)),
}


def main() -> None:
    """Train, judge, print."""
    given = _arguments()
    if given.judge is not None:
        _judge_again(given.judge, given.json)
        return
    torch.set_num_threads(1)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.simplefilter("ignore")
    rows, levels = [], {}
    for place, name in enumerate(KINDS):
        if given.names and name not in given.names:
            continue
        with tempfile.TemporaryDirectory() as temporary:
            out = Path(temporary)
            with bursts(pressed=place % 2 == 1):
                KINDS[name](out, given.seconds)
            row, levels[name] = judged(out)
        rows.append({"fit": name, "next to bursts": place % 2 == 1, **row})
        print(rows[-1], flush=True)
    print(machine_line())
    print(table(list(rows[0]), [[str(value) for value in row.values()] for row in rows]))
    if given.json and given.json.exists():
        rows = [*json.loads(given.json.read_text())["fits"], *rows]
    write_json(given.json, {"seconds": given.seconds, "floor_s": FLOOR_S, "fits": rows})
    if given.levels:
        if given.levels.exists():
            with np.load(given.levels) as before:
                levels = {**before, **levels}
        np.savez_compressed(given.levels, allow_pickle=False, **levels)


def _arguments() -> argparse.Namespace:
    parser = arguments(__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(KINDS))
    parser.add_argument("--seconds", type=float, default=40.0, help="of each fit")
    parser.add_argument("--levels", type=Path, default=None, help="and the levels here (.npz)")
    parser.add_argument("--judge", type=Path, default=None, help="levels that were recorded")
    return parser.parse_args()


def _judge_again(recorded: Path, target: Path | None) -> None:
    again = judged_again(recorded)
    print(table(list(again[0]), [[str(value) for value in row.values()] for row in again]))
    if target is not None:
        before = json.loads(target.read_text())
        target.write_text(json.dumps({**before, "judged_again": again}, indent=2) + "\n")


@contextmanager
def bursts(*, pressed: bool) -> Iterator[None]:
    """Another process that takes a processor for a second, two seconds apart, at random."""
    if not pressed:
        yield
        return
    other = multiprocessing.get_context("spawn").Process(target=_bursts, daemon=True)
    other.start()
    try:
        yield
    finally:
        other.kill()
        other.join()


def _bursts() -> None:
    draws = random.Random(0)  # noqa: S311 no secret
    while True:
        until = time.monotonic() + draws.expovariate(1.0)
        while time.monotonic() < until:
            pass
        time.sleep(draws.expovariate(0.5))


def judged(out: Path) -> tuple[dict[str, Any], npt.NDArray[np.float32]]:
    """What is said of the fit, with and without the floor, and the levels it is said of."""
    run = Run.open(out)
    summary = summarize(run)
    replay, fold = Replay(run), LevelsFold(1)
    for blocks in replay.blocks():
        fold.observe(JobBlock.of(blocks))
    (pieces,) = fold.levels()
    floor_s, long_term.LEAST_LASTS_S = long_term.LEAST_LASTS_S, FLOOR_S
    strict = summarize(run)
    long_term.LEAST_LASTS_S = floor_s
    walls = walls_s(pieces) * 1e9
    low, high = np.percentile(walls, [10, 90])
    matrix, steps = pieces, LEAST_STEPS
    while len(matrix) > MOST_PIECES:
        steps *= 2
        matrix = joined(matrix, steps)
    return {
        "steps": summary.run.steps,
        "pieces": len(pieces),
        "median_ms": round(float(np.median(walls)) / 1e6, 3),
        "spread": round(float(high / low - 1), 3),
        "named": _named(summary),
        "named without the floor": _named(strict),
    }, matrix.astype(np.float32)


def judged_again(recorded: Path) -> list[dict[str, Any]]:
    """What is said of recorded levels without the floor; as they are, and with a planted change.

    A drift of forward to four times the step, and half a step more of data wait from the middle on.
    """
    long_term.LEAST_LASTS_S = FLOOR_S
    rows = []
    with np.load(recorded) as matrices:
        for name, recorded_then in matrices.items():
            values = with_later_columns(recorded_then)
            step_ns = float(np.median(walls_s(values))) * 1e9
            course = np.linspace(0, 1, len(values))
            drifting = _with(values, "forward", 3 * step_ns * course)
            stepping = _with(values, "data_wait", 0.5 * step_ns * (course > 0.5))
            as_it_is, drift, step = map(_change_of, (values.astype(np.float64), drifting, stepping))
            rows.append(
                {
                    "fit": name,
                    "named": bool(as_it_is),
                    "a drift told": any(not each.from_step for each in drift),
                    "a step told": any(each.from_step for each in step),
                }
            )
    return rows


def with_later_columns(matrix: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """A recording from before some columns were added, which lie behind the others."""
    added = len(COLUMNS) - matrix.shape[1]
    return np.pad(matrix, ((0, 0), (0, added)), constant_values=np.nan)


def _with(values: npt.NDArray[np.float32], phase: str, more_ns: npt.NDArray[Any]) -> Column:
    """The same levels, in which a phase takes more."""
    levels = values.astype(np.float64)
    levels[:, COLUMNS.index(phase)] += more_ns
    return levels


def _change_of(matrix: Column) -> tuple[RunChange, ...]:
    return long_term.long_term({0: matrix})


def _named(summary: Summary) -> list[str]:
    return [finding.id for finding in summary.findings if finding.id in NAMES]


if __name__ == "__main__":
    main()
