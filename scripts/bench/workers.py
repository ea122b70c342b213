"""Bench of what is seen inside the workers of a loader, against what was planted there.

    python -m scripts.bench.workers [--json FILE]

Workers of a real loader sleep for a known time per batch while a loop takes a known time for each:
how large a part of its time a worker makes batches follows from both.
"""

import multiprocessing
import time
from dataclasses import asdict, dataclass

import torch
from torch.utils.data import DataLoader, Dataset

from scripts.bench.harness import arguments, publish, quiet
from trainperf.analysis.diagnosis.workers import loader_workers
from trainperf.core.artifacts.lines import SampledLines
from trainperf.recording.worker_lines import WORKER_LINES, joined


_NOTHING = SampledLines(taken=0, every=1, cost_s=0.0, places=(), stacks=(), samples=())
PLANTED = (0.2, 0.5, 0.8, 1.0)
"""Shares of its time in which a worker makes batches."""
MAKING_S, BATCHES = 0.04, 400


class Sleeping(Dataset[torch.Tensor]):
    """A batch takes a known time: on a busy machine somewhat more, which is counted."""

    def __init__(self) -> None:
        self.made_s = multiprocessing.Value("d")

    def __len__(self) -> int:
        return BATCHES

    def __getitem__(self, index: int) -> torch.Tensor:
        began_s = time.perf_counter()
        time.sleep(MAKING_S)
        with self.made_s.get_lock():
            self.made_s.value += time.perf_counter() - began_s
        return torch.tensor(float(index))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One loop with two workers."""

    planted: float
    truth: float
    """By the clock of the workers' own code."""
    sampled: float
    samples: int
    cost: float
    """Share of the workers' time that sampling took."""


def seen_of(planted: float) -> Row:
    """What is seen where each of two workers is asked for a batch every so often."""
    before = len(WORKER_LINES.collect())
    dataset = Sleeping()
    loader = DataLoader(dataset, batch_size=1, num_workers=2, prefetch_factor=2)
    interval_s = MAKING_S / planted / 2
    began_s = due_s = time.perf_counter()
    for _ in loader:
        due_s += interval_s
        time.sleep(max(0.0, due_s - time.perf_counter()) if planted < 1.0 else 0.0)
    took_s = time.perf_counter() - began_s
    tables = WORKER_LINES.collect()[before:]
    lines = joined(_NOTHING, tables)
    workers = loader_workers(lines, 2)
    if workers is None:
        raise SystemExit("no samples")
    return Row(
        planted=planted,
        truth=dataset.made_s.value / 2 / took_s,
        sampled=sum(workers.making) / 2,
        samples=sum(worker.samples for worker in lines.workers),
        cost=sum(worker.cost_s for worker in lines.workers)
        / sum(worker.making_s + worker.waiting_s for worker in lines.workers),
    )


def main() -> None:
    """All shares, and the cost."""
    options = arguments(__doc__).parse_args()
    WORKER_LINES.start()
    with quiet():
        rows = [seen_of(planted) for planted in PLANTED]
    publish(
        options.json,
        ("planted", "truth", "seen", "samples", "cost"),
        [
            [
                f"{row.planted:.2f}",
                f"{row.truth:.3f}",
                f"{row.sampled:.3f}",
                str(row.samples),
                f"{row.cost:.2%}",
            ]
            for row in rows
        ],
        {"rows": [asdict(row) for row in rows]},
    )


if __name__ == "__main__":
    main()
