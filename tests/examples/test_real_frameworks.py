"""Examples on the real DeepSpeed and Ultralytics, where they are installed.

Everywhere else stand-ins take their places (`support.stand_ins`).
"""

import importlib.util
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
