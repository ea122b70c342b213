"""Training loops of several kinds, with steps of one to three milliseconds, and work to add."""

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.job_block import JobBlock
from trainperf.analysis.run.replay import Replay
from trainperf.comparison.compared_run import SampleFold
from trainperf.core.steps.block import StepBlock
from trainperf.loop import LoopMonitor


Batch = tuple[torch.Tensor, torch.Tensor]
Make = Callable[[], "BenchLoop"]

UNIT = 24
"""Side of the matrices of one unit of added work: some microseconds, in cache."""


@dataclass(slots=True, kw_only=True)
class BenchLoop:
    """What a loop is made of."""

    model: torch.nn.Module
    batches: Callable[[int], "DataLoader[Batch] | list[Batch]"]
    """So many batches."""
    validate_every: int = 0
    """Steps between validations; 0 is never."""
    garbage: int = 0
    """Objects in cycles that every step leaves to the collector."""
    wait_s: float = 0.0
    """What every step sleeps, as it would for a device; work added to it is sleep, too."""


@dataclass(slots=True)
class Extra:
    """Real work added to steps: so many small matrix products.

    Args:
        units: Per step; of two numbers the steps take them in turns.
        wait_s: Of a loop that sleeps, what a step sleeps: a unit is a thousandth of it.
    """

    units: tuple[int, ...] = (0,)
    wait_s: float = 0.0
    _left: torch.Tensor = field(default_factory=lambda: torch.full((UNIT, UNIT), 1e-3))
    _step: int = 0

    def __call__(self) -> None:
        """Do the work of the next step."""
        units = self.units[self._step % len(self.units)]
        if self.wait_s:
            time.sleep(self.wait_s * (1 + units / 1000))
        else:
            for _ in range(units):
                torch.mm(self._left, self._left)
        self._step += 1


def train(parts: BenchLoop, steps: int, place: Path, extra: Extra) -> Path:
    """Train so many steps under a monitor.

    Returns:
        The run directory.
    """
    model, optimizer = parts.model, torch.optim.SGD(parts.model.parameters(), lr=1e-3)
    monitor = LoopMonitor(place, report=False).watch(model, optimizer)
    batches = parts.batches(steps)
    for number, (data, target) in enumerate(monitor.batches(batches), 1):
        with monitor.phase("forward"):
            loss = functional.mse_loss(model(data), target)
            extra()
        with monitor.phase("backward"):
            loss.backward()  # type: ignore[no-untyped-call]
        with monitor.phase("optimizer"):
            optimizer.step()
            optimizer.zero_grad()
        _litter(parts.garbage)
        monitor.end_step(loss)
        if parts.validate_every and number % parts.validate_every == 0:
            with monitor.phase("validation"), torch.no_grad():
                for _ in range(5):
                    model(data)
    monitor.close()
    if monitor.run is None:
        raise RuntimeError("the run has no directory")
    return monitor.run


def read_back(path: Path) -> StepBlock:
    """The steady steps of a run of one rank on disk."""
    fold = SampleFold()
    for blocks in Replay(Run.open(path)).blocks():
        fold.observe(JobBlock.of(blocks))
    return fold.sample()[0]


def _litter(number: int) -> None:
    for _ in range(number):
        cycle: list[object] = []
        cycle.append(cycle)


def _ready(*shape: int, out: tuple[int, ...]) -> Callable[[int], list[Batch]]:
    batch = torch.randn(*shape), torch.randn(*out)
    return lambda number: [batch] * number


def matmul(rows: int = 16) -> BenchLoop:
    """Wide layers: nearly all of the step is in matrix products."""
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)
    )
    return BenchLoop(model=model, batches=_ready(rows, 256, out=(rows, 256)))


def small_ops(depth: int = 9) -> BenchLoop:
    """Many layers of next to nothing: dispatch and Python."""
    layers = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(depth)]
    return BenchLoop(model=torch.nn.Sequential(*layers), batches=_ready(4, 8, out=(4, 8)))


class WordDataset(Dataset[Batch]):
    """Samples that are made of text in Python, one after the other."""

    def __init__(self, number: int, words: int) -> None:
        scatter = random.Random(0)  # noqa: S311 data, no secret
        self._number = number
        self._texts = [
            [str(scatter.randrange(10_000)) for _ in range(scatter.randrange(words, 2 * words))]
            for _ in range(97)
        ]

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, index: int) -> Batch:
        counts: dict[int, int] = {}
        for word in self._texts[index % len(self._texts)]:
            place = hash(word) % 32
            counts[place] = counts.get(place, 0) + 1
        data = torch.tensor([float(counts.get(place, 0)) for place in range(32)])
        return data, data[:1]


def python_loader(rows: int = 4) -> BenchLoop:
    """Samples made in Python by the training process: their cost varies from step to step."""
    return BenchLoop(
        model=torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)),
        batches=lambda number: DataLoader(WordDataset(rows * number, 100), batch_size=rows),
    )


def pauses(rows: int = 48) -> BenchLoop:
    """Validation every 40 steps, and garbage in cycles that the collector must find."""
    model = torch.nn.Sequential(
        torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 128)
    )
    return BenchLoop(
        model=model, batches=_ready(rows, 128, out=(rows, 128)), validate_every=40, garbage=60
    )


def convolution(rows: int = 4) -> BenchLoop:
    """Small pictures through two convolutions."""
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3, stride=2)
    )
    return BenchLoop(model=model, batches=_ready(rows, 3, 24, 24, out=(rows, 4, 5, 5)))


def attention(rows: int = 4) -> BenchLoop:
    """One layer of a transformer on short sequences."""
    model = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    return BenchLoop(model=model, batches=_ready(rows, 12, 32, out=(rows, 12, 32)))


class ParsedRows(Dataset[Batch]):
    """Samples that are parsed from lines of numbers."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._lines = [",".join(str(n * k % 991) for k in range(48)) for n in range(61)]

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, index: int) -> Batch:
        line = self._lines[index % len(self._lines)]
        data = torch.tensor([float(cell) for cell in line.split(",")])
        return data / 991, data[:1] / 991


def parsing_loader(rows: int = 5) -> BenchLoop:
    """Lines parsed by the training process, shuffled."""
    return BenchLoop(
        model=torch.nn.Sequential(torch.nn.Linear(48, 96), torch.nn.GELU(), torch.nn.Linear(96, 1)),
        batches=lambda number: DataLoader(ParsedRows(rows * number), batch_size=rows, shuffle=True),
    )


def recurrent_pauses(rows: int = 8) -> BenchLoop:
    """A recurrent layer, validated every 25 steps, with some garbage."""
    return BenchLoop(
        model=_Recurrent(),
        batches=_ready(rows, 4, 16, out=(rows, 4, 16)),
        validate_every=25,
        garbage=40,
    )


class _Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.GRU(16, 16, batch_first=True)

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        outputs: torch.Tensor = self.inner(data)[0]
        return outputs


KINDS: Mapping[str, Mapping[str, Make]] = {
    "tune": {
        "matmul": matmul,
        "small operators": small_ops,
        "Python loader": python_loader,
        "pauses": pauses,
    },
    "held out": {
        "convolution": convolution,
        "attention": attention,
        "parsing loader": parsing_loader,
        "recurrent, pauses": recurrent_pauses,
    },
}
"""Which loops the method was tuned on, and which it had not seen."""


def sleeping(wait_s: float = 0.004) -> BenchLoop:
    """A step that mostly waits, as for a device: its core goes cold."""
    model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    return BenchLoop(model=model, batches=_ready(8, 64, out=(8, 8)), wait_s=wait_s)


SINGLE_KINDS: Mapping[str, Mapping[str, Make]] = {
    "tune": {
        "matmul": partial(matmul, 160),
        "small operators": partial(small_ops, 40),
        "Python loader": partial(python_loader, 36),
        "pauses": partial(pauses, 480),
        "sleeping": sleeping,
    },
    "held out": {
        "convolution": partial(convolution, 64),
        "attention": partial(attention, 48),
        "parsing loader": partial(parsing_loader, 40),
        "recurrent, pauses": partial(recurrent_pauses, 280),
        "sleeping longer": partial(sleeping, 0.008),
    },
}
"""The same loops with longer steps, 2 to 10 ms, and one that sleeps: for runs of 400 steps."""
