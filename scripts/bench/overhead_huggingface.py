"""What the callback costs a step of a Hugging Face `Trainer`: trainings in turns, with and without.

    python -m scripts.bench.overhead_huggingface [--pairs 10] [--json PATH]

Thread CPU time of each step between two events of the Trainer, by a callback that both trainings
have; of each the median step, and the mean, which has flushes and looks in it, and the median over
pairs of their differences; then what the trainings' own reports say that it is.  The model is one
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
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.core.readings import OVERHEAD_S
from trainperf.huggingface import TrainPerfCallback


STEPS, SKIPPED = 1000, 200


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

    def step_s(self) -> tuple[float, float]:
        """Median and mean of a step, without the first ones."""
        steps = [b - a for a, b in itertools.pairwise(self.at_s[SKIPPED:])]
        return statistics.median(steps), statistics.fmean(steps)


def step_s(folder: Path, *, measured: bool) -> tuple[float, float, float]:
    """Median and mean step of one training, and what its report says it cost; 0 without one."""
    clock = StepClock()
    rows = [{"x": torch.ones(16), "labels": torch.tensor(i % 2)} for i in range(8)] * 500
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
    own = TrainPerfCallback(report=False) if measured else None
    with quiet():
        callbacks = [clock] if own is None else [clock, own]
        Trainer(Tiny(), args, train_dataset=rows, callbacks=callbacks).train()
    return *clock.step_s(), 0.0 if own is None else reported_s(own)


def reported_s(callback: TrainPerfCallback) -> float:
    """What the run says that it cost a step."""
    if callback.run is None:
        raise RuntimeError("no run was written")
    summary = summarize(Run.open(callback.run))
    if summary.run.steps < STEPS or summary.run.faults:
        raise RuntimeError(f"{summary.run.steps} of {STEPS} steps recorded, {summary.run.faults}")
    return summary.value(OVERHEAD_S) or 0.0


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    torch.set_num_threads(1)
    pairs: list[tuple[tuple[float, float, float], tuple[float, float, float]]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.pairs + 1):
            order = (False, True) if number % 2 else (True, False)
            took = {which: step_s(Path(folder), measured=which) for which in order}
            pairs += [(took[False], took[True])] * bool(number)  # the first pair warms up
    print(machine_line())
    result: dict[str, object] = {"pairs": pairs}
    for place, name in enumerate(("median", "mean")):
        added = estimate([(own[place] - bare[place]) * 1e6 for bare, own in pairs])
        ratio = estimate([own[place] / bare[place] for bare, own in pairs])
        base_us = 1e6 * statistics.median(bare[place] for bare, _ in pairs)
        print(
            f"{name} step {base_us:.0f} µs of thread CPU time, "
            f"{added.median:+.1f} [{added.low:.1f}, {added.high:.1f}], "
            f"{ratio.median:.3f} × [{ratio.low:.3f}, {ratio.high:.3f}]"
        )
        result[name] = {"added_us": asdict(added), "ratio": asdict(ratio)}
    result["reported_us"] = 1e6 * statistics.median(own[2] for _, own in pairs)
    print(f"as its reports say: {result['reported_us']:.1f}")
    write_json(given.json, {**machine(), **result})


if __name__ == "__main__":
    main()
