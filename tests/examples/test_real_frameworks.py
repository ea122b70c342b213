"""Examples on the real DeepSpeed, Ultralytics and PyTorch-Ignite, where they are installed.

Everywhere else stand-ins take the places of the first two (`support.stand_ins`).
"""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.loops import Written, read

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize


pytestmark = pytest.mark.slow

EXAMPLES = Path(__file__).parents[2] / "examples"

NAPS = """
import runpy, sys, time
from ultralytics import YOLO

script = runpy.run_path(sys.argv[1])


class Slowed(script["MeasuredTrainer"]):
    def build_dataset(self, *args, **options):
        dataset = super().build_dataset(*args, **options)
        collate = dataset.collate_fn

        def slow(samples):
            time.sleep(0.02)
            return collate(samples)

        dataset.collate_fn = slow
        return dataset


model = YOLO("yolo11n.yaml")
model.add_callback("on_train_batch_end", lambda trainer: time.sleep(0.005))
data = str(script["draw"](script["Path"]("shapes"), 64))
model.train(trainer=Slowed, data=data, epochs=2, imgsz=64, batch=8, nbs=8, workers=0,
            device="cpu", plots=False, amp=False)
"""
"""The example with 20 ms in the loader and 5 ms in a callback, in each of sixteen batches."""


HANDLERS = """
import json, runpy, sys, time
import torch
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import Checkpoint, DiskSaver
from torch.utils.data import DataLoader, TensorDataset, default_collate

slept = {}


def nap(where, ms):
    begun = time.perf_counter()
    time.sleep(ms / 1e3)
    slept.setdefault(where, []).append(time.perf_counter() - begun)


class Slow(torch.nn.Linear):
    def forward(self, rows):
        nap("forward" if self.training else "validation", 15)
        return super().forward(rows)


class SlowSGD(torch.optim.SGD):
    def step(self, closure=None):
        nap("optimizer", 7)
        return super().step(closure)


def collate(rows):
    nap("data_wait", 20)
    return default_collate(rows)


script = runpy.run_path(sys.argv[1])
steps = int(sys.argv[2]) if len(sys.argv) > 2 else 1
torch.set_num_threads(1)
data = TensorDataset(torch.ones(64, 4), torch.zeros(64, dtype=torch.int64))
model = Slow(4, 2)
model.weight.register_hook(lambda _: nap("backward", 10))
optimizer = SlowSGD(model.parameters(), lr=0.1)
loss = torch.nn.CrossEntropyLoss()
trainer = create_supervised_trainer(model, optimizer, loss, gradient_accumulation_steps=steps)
evaluator = create_supervised_evaluator(model)
measure = script["TrainPerfHandlers"](
    dirpath="runs", report=False, lines=False, machine=False, gradient_accumulation_steps=steps
).attach(trainer, model, optimizer)
measure.validates(evaluator)
held_out = DataLoader(TensorDataset(torch.ones(8, 4), torch.zeros(8)), 4)
trainer.add_event_handler(Events.ITERATION_STARTED, lambda: nap("callbacks", 2))
trainer.add_event_handler(Events.ITERATION_COMPLETED, lambda: nap("callbacks", 5))
trainer.add_event_handler(Events.ITERATION_COMPLETED(every=4), lambda: evaluator.run(held_out))


class Saver(DiskSaver):
    def __call__(self, *args, **options):
        nap("checkpoint", 25)
        super().__call__(*args, **options)


saves = measure.checkpoint(Checkpoint({"model": model}, Saver("kept", require_empty=False)))
trainer.add_event_handler(Events.EPOCH_COMPLETED, saves)
with measure:
    trainer.run(DataLoader(data, 8, collate_fn=collate), max_epochs=2)
assert not model._forward_pre_hooks and not model._forward_hooks
assert not optimizer._optimizer_step_pre_hooks
with open("slept.json", "w") as file:
    json.dump({where: [len(naps), sum(naps)] for where, naps in slept.items()}, file)
"""
"""An engine with 20 ms in the loader, 15 in forward, 10 in backward, 7 in update and handlers each.

A validation of 30 ms comes every fourth iteration, a checkpoint of 25 ms at each of two ends of an
epoch.  Writes how often it slept in each, and how long in all.
"""


FAILING = """
import contextlib


def fail():
    raise LookupError("planted")


trainer.add_event_handler(Events.ITERATION_COMPLETED(once=5), fail)
with contextlib.suppress(LookupError), measure:
"""


def trained(framework: str, folder: Path, *command: str) -> Written:
    """What a script has left that ran in a folder, in a process of its own."""
    if importlib.util.find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed")
    ended = subprocess.run(
        [sys.executable, *command],
        cwd=folder,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ended.returncode == 0, ended.stderr[-2000:]
    (file,) = folder.rglob("steps-rank0.jsonl")
    assert summarize(Run.open(file.parent)).run.faults == {}
    return read(file)


def test_a_deepspeed_engine(tmp_path: Path) -> None:
    """Its launcher is torch's; a step is an update of two micro-batches."""
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "1")

    run = trained("deepspeed", tmp_path, *launcher, str(EXAMPLES / "deepspeed_digits.py"))

    assert len(run.steps) == 60
    assert {step.micro_batches for step in run.steps} == {2}
    for phase in ("data_wait", "forward", "backward", "optimizer"):
        assert min(run.phase_s(phase)) > 0


def test_an_ultralytics_trainer(tmp_path: Path) -> None:
    """What is planted in its loader and in a callback comes back there."""
    run = trained("ultralytics", tmp_path, "-c", NAPS, str(EXAMPLES / "ultralytics_shapes.py"))

    assert len(run.steps) == 16
    assert min(run.phase_s("data_wait")) >= 0.02
    assert min(run.phase_s("callbacks")) >= 0.005
    assert min(run.phase_s("optimizer")) > 0
    assert {gap.gap for gap in run.gaps} >= {"validation", "checkpoint"}


@pytest.mark.parametrize("accumulation", [1, 2])
def test_an_ignite_engine(accumulation: int, tmp_path: Path) -> None:
    """What is planted in each phase and gap comes back there, and no hook is left."""
    example = str(EXAMPLES / "ignite_adapter.py")
    run = trained("ignite", tmp_path, "-c", HANDLERS, example, str(accumulation))

    assert [step.micro_batches for step in run.steps] == [accumulation] * (16 // accumulation)
    slept = json.loads((tmp_path / "slept.json").read_text(encoding="utf-8"))
    gaps = {
        name: sum(gap.duration_ns for gap in run.gaps if gap.gap == name) / 1e9
        for name in ("validation", "checkpoint")
    }
    for name, (_, total_s) in slept.items():
        recorded_s = gaps[name] if name in gaps else sum(run.phase_s(name))
        assert recorded_s >= total_s, name
    rest_s = sum(map(sum, map(run.phase_s, ("loop", "other"))))
    assert rest_s < sum(total_s for _, total_s in slept.values())


def test_an_ignite_engine_that_raises(tmp_path: Path) -> None:
    """The run is closed with the name of the error; no handler of ours and no hook is left."""
    failing = HANDLERS.replace("with measure:", FAILING)

    run = trained("ignite", tmp_path, "-c", failing, str(EXAMPLES / "ignite_adapter.py"))

    assert len(run.steps) == 5
    assert run.entries[-1].reason == "LookupError"
