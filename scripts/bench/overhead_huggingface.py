"""What the callback costs a step of a Hugging Face `Trainer`: trainings in turns.

    python -m scripts.bench.overhead_huggingface [--rounds 10] [--json PATH]

One training has no callback of ours, one has ours, and one has a callback that only reads the clock
in the same places, whose cost is the price of being called there.  Thread CPU time of each step
between two events of the Trainer, by a callback that all have; of each training the fast step (the
tenth percentile, which a disturbed machine moves least), the median, and the mean, which has
flushes and looks in it, and the median over rounds of their differences; then what the trainings'
own reports say that it is.  The model is one linear layer: nothing hides the cost.
"""

import itertools
import statistics
import tempfile
import time
from pathlib import Path
from statistics import fmean
from typing import Any

import msgspec
import torch
from accelerate import Accelerator
from transformers import Trainer, TrainerCallback, TrainingArguments

from scripts.bench.harness import (
    PairedEstimate,
    arguments,
    estimate,
    machine_line,
    quiet,
    table,
    write_json,
)
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.core.readings import OVERHEAD_S
from trainperf.huggingface import TrainPerfCallback
from trainperf.loop.prepared_loaders import ACCELERATED, BracketedBatches
from trainperf.recording.process_objects import living


STEPS, SKIPPED = 1000, 200

NOTHING, CLOCK, OURS = "nothing", "the clock alone", "TrainPerfCallback"

STATISTICS = ("fast", "median", "mean")


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

    def step_s(self) -> tuple[float, float, float]:
        """Tenth percentile, median and mean of a step, without the first ones."""
        steps = [b - a for a, b in itertools.pairwise(self.at_s[SKIPPED:])]
        return statistics.quantiles(steps, n=10)[0], statistics.median(steps), fmean(steps)


class StampCallback(TrainerCallback):
    """Reads the clock where `TrainPerfCallback` does, and does nothing else."""

    def __init__(self) -> None:
        times: list[int] = []
        append, clock = times.append, time.perf_counter_ns

        def stamp(*_: object, **__: object) -> None:
            append(clock())

        def last(*_: object, **__: object) -> None:
            append(clock())
            times.clear()

        self._stamp = stamp
        events = ("on_pre_optimizer_step", "on_optimizer_step")
        vars(self).update({**dict.fromkeys(events, stamp), "on_step_end": last})

    def on_train_begin(self, *_: object, **given: Any) -> None:  # noqa: ANN401 whatever the Trainer has
        """Stand around the loader, before forward and around backward."""
        stamp, loader, model = self._stamp, given["train_dataloader"], given["model"]
        inner = getattr(loader, ACCELERATED)
        setattr(loader, ACCELERATED, BracketedBatches(inner, stamp, stamp))
        model.register_forward_pre_hook(stamp, prepend=True, with_kwargs=True)
        accelerator = next(each for each in living(Accelerator) if model in each._models)  # noqa: SLF001 a callback is not told
        backward = accelerator.backward

        def measured(loss: torch.Tensor, *args: object, **options: object) -> None:
            stamp()
            try:
                backward(loss, *args, **options)
            finally:
                stamp()

        setattr(accelerator, "backward", measured)  # noqa: B010 a method, on one object


def training(folder: Path, row: str) -> dict[str, float]:
    """Seconds of a step of one training, and what its report says it cost; 0 without one."""
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
    own = TrainPerfCallback(report=False) if row == OURS else None
    callbacks: list[TrainerCallback] = [clock]
    if row != NOTHING:
        callbacks.append(own or StampCallback())
    with quiet():
        Trainer(Tiny(), args, train_dataset=rows, callbacks=callbacks).train()
    took = dict(zip(STATISTICS, clock.step_s(), strict=True))
    return {**took, "reported": 0.0 if own is None else reported_s(own)}


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
    parser = arguments(__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="each has a training of every kind")
    given = parser.parse_args()
    torch.set_num_threads(1)
    rounds: list[dict[str, dict[str, float]]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(given.rounds + 1):
            order = [(NOTHING, CLOCK, OURS)[(number + place) % 3] for place in range(3)]
            took = {row: training(Path(folder), row) for row in order}
            rounds += [took] * bool(number)  # the first one warms up
    print(machine_line())
    result: dict[str, object] = {"rounds": rounds}
    cells = []
    for row in (CLOCK, OURS):
        result[row] = added = {name: _added(rounds, row, name) for name in STATISTICS}
        for name, (microseconds, ratio, base_us) in added.items():
            interval = f"{microseconds.low:.1f} to {microseconds.high:.1f}"
            cells.append([row, name, f"{base_us:.0f}", f"{microseconds.median:+.1f}", interval])
            cells[-1].append(f"{ratio.median:.3f}")
    print(table(["attached", "step", "alone, µs", "added, µs", "interval", "×"], cells))
    result["reported_us"] = 1e6 * statistics.median(took[OURS]["reported"] for took in rounds)
    print(f"as its reports say: {result['reported_us']:.1f}")
    write_json(given.json, msgspec.to_builtins(result))


def _added(
    rounds: list[dict[str, dict[str, float]]], row: str, name: str
) -> tuple[PairedEstimate, PairedEstimate, float]:
    """Microseconds, ratio, and the step alone in microseconds."""
    pairs = [(took[NOTHING][name], took[row][name]) for took in rounds]
    added = estimate([1e6 * (own - bare) for bare, own in pairs])
    base_us = 1e6 * statistics.median(bare for bare, _ in pairs)
    return added, estimate([own / bare for bare, own in pairs]), base_us


if __name__ == "__main__":
    main()
