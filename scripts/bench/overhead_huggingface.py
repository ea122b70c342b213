"""What the callback costs a step of a Hugging Face `Trainer`: trainings in turns, with and without.

    python -m scripts.bench.overhead_huggingface [--pairs 10] [--json PATH]

Thread CPU time of each step between two events of the Trainer, by a callback that both trainings
have; the median step of each, and the median over pairs of their difference.  The model is one
linear layer: nothing hides the cost.
"""

import argparse
import itertools
import statistics
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import torch
from transformers import Trainer, TrainerCallback, TrainingArguments

from scripts.bench.harness import estimate, machine, machine_line, quiet, write_json
from trainperf.huggingface import TrainPerfCallback


STEPS, SKIPPED = 400, 100


class Tiny(torch.nn.Module):
    """One layer, and a loss."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 2)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        """Loss and logits."""
        logits = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


class StepClock(TrainerCallback):
    """Thread CPU time at each step's end."""

    def __init__(self) -> None:
        self.at_s: list[float] = []

    def on_step_end(self, *_: object, **__: object) -> None:
        """A step is over."""
        self.at_s.append(time.thread_time())

    def median_s(self) -> float:
        """Of a step, without the first ones."""
        later = self.at_s[SKIPPED:]
        return statistics.median(b - a for a, b in itertools.pairwise(later))


def step_s(folder: Path, *, measured: bool) -> float:
    """The median step of one training."""
    clock = StepClock()
    rows = [{"x": torch.ones(16), "labels": torch.tensor(i % 2)} for i in range(8)] * 200
    args = TrainingArguments(
        str(folder),
        max_steps=STEPS,
        per_device_train_batch_size=4,
        report_to="none",
        save_strategy="no",
        logging_strategy="no",
        use_cpu=True,
        disable_tqdm=True,
    )
    callbacks: list[TrainerCallback] = [TrainPerfCallback(report=False)] if measured else []
    with quiet():
        Trainer(Tiny(), args, train_dataset=rows, callbacks=[clock, *callbacks]).train()
    return clock.median_s()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    pairs: list[tuple[float, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.pairs + 1):
            order = (False, True) if number % 2 else (True, False)
            took = {which: step_s(Path(folder), measured=which) for which in order}
            pairs += [(took[False], took[True])] * bool(number)  # the first pair warms up
    added = estimate([(with_s - bare_s) * 1e6 for bare_s, with_s in pairs])
    ratio = estimate([with_s / bare_s for bare_s, with_s in pairs])
    print(machine_line())
    print(
        f"bare step {statistics.median(bare for bare, _ in pairs) * 1e6:.0f} µs of thread CPU time"
    )
    print(f"added {added.median:.1f} µs a step [{added.low:.1f}, {added.high:.1f}]")
    print(f"ratio {ratio.median:.3f} [{ratio.low:.3f}, {ratio.high:.3f}]")
    result = {"pairs": pairs, "added_us": asdict(added), "ratio": asdict(ratio)}
    write_json(given.json, {**machine(), **result})


if __name__ == "__main__":
    main()
