"""Training loops of several kinds, with steps of one to three milliseconds, and work to add."""

import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset

from trainperf.core.machine.clocks import HostClock
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


@dataclass(slots=True)
class Extra:
    """Real work added to steps: so many small matrix products.

    Args:
        units: Per step; of two numbers the steps take them in turns.
    """

    units: tuple[int, ...] = (0,)
    _left: torch.Tensor = field(default_factory=lambda: torch.full((UNIT, UNIT), 1e-3))
    _step: int = 0

    def __call__(self) -> None:
        """Do the work of the next step."""
        for _ in range(self.units[self._step % len(self.units)]):
            torch.mm(self._left, self._left)
        self._step += 1


def train(parts: BenchLoop, steps: int, place: Path, extra: Extra, clock: HostClock) -> Path:
    """Train so many steps under a monitor that reads this clock.

    Returns:
        The run directory.
    """
    model, optimizer = parts.model, torch.optim.SGD(parts.model.parameters(), lr=1e-3)
    monitor = LoopMonitor(place, report=False, clock=clock).watch(model, optimizer)
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


def _litter(number: int) -> None:
    for _ in range(number):
        cycle: list[object] = []
        cycle.append(cycle)


def _ready(*shape: int, out: tuple[int, ...]) -> Callable[[int], list[Batch]]:
    batch = torch.randn(*shape), torch.randn(*out)
    return lambda number: [batch] * number


def matmul() -> BenchLoop:
    """Wide layers: nearly all of the step is in matrix products."""
    model = torch.nn.Sequential(
        torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 256)
    )
    return BenchLoop(model=model, batches=_ready(16, 256, out=(16, 256)))


def small_ops() -> BenchLoop:
    """Many layers of next to nothing: dispatch and Python."""
    layers = [torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Tanh()) for _ in range(9)]
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


def python_loader() -> BenchLoop:
    """Samples made in Python by the training process: their cost varies from step to step."""
    return BenchLoop(
        model=torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)),
        batches=lambda number: DataLoader(WordDataset(4 * number, 100), batch_size=4),
    )


def pauses() -> BenchLoop:
    """Validation every 40 steps, and garbage in cycles that the collector must find."""
    model = torch.nn.Sequential(
        torch.nn.Linear(128, 256), torch.nn.ReLU(), torch.nn.Linear(256, 128)
    )
    return BenchLoop(
        model=model, batches=_ready(48, 128, out=(48, 128)), validate_every=40, garbage=60
    )


def convolution() -> BenchLoop:
    """Small pictures through two convolutions."""
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3, stride=2), torch.nn.ReLU(), torch.nn.Conv2d(8, 4, 3, stride=2)
    )
    return BenchLoop(model=model, batches=_ready(4, 3, 24, 24, out=(4, 4, 5, 5)))


def attention() -> BenchLoop:
    """One layer of a transformer on short sequences."""
    model = torch.nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)
    return BenchLoop(model=model, batches=_ready(4, 12, 32, out=(4, 12, 32)))


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


def parsing_loader() -> BenchLoop:
    """Lines parsed by the training process, shuffled."""
    return BenchLoop(
        model=torch.nn.Sequential(torch.nn.Linear(48, 96), torch.nn.GELU(), torch.nn.Linear(96, 1)),
        batches=lambda number: DataLoader(ParsedRows(5 * number), batch_size=5, shuffle=True),
    )


def recurrent_pauses() -> BenchLoop:
    """A recurrent layer, validated every 25 steps, with some garbage."""
    return BenchLoop(
        model=_Recurrent(),
        batches=_ready(8, 4, 16, out=(8, 4, 16)),
        validate_every=25,
        garbage=40,
    )


class _Recurrent(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.GRU(16, 16, batch_first=True)

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.inner(data)[0]
        return found


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


def kinds(split: str) -> Iterator[tuple[str, Make]]:
    """Of one of the two sets."""
    yield from KINDS[split].items()
