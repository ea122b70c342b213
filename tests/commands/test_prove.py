"""`trainperf prove`: two trainings in turns, and whether the second is faster."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator
from support.commands import typed
from support.loops import read

from scripts.render_docs import SCHEMAS
from trainperf.commands._trainings import end_trainings
from trainperf.core.phases import Gap, Tag


LOOP = """
import sys, time
import torch
from trainperf.loop import LoopMonitor

torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
monitor = LoopMonitor("unused", report=False).watch(model, optimizer)
last = int(sys.argv[2]) if len(sys.argv) > 2 else 80
for number, batch in enumerate(monitor.batches([torch.ones(2, 4)] * 80)):
    if number == last:
        raise ValueError("no memory")
    with monitor.phase("forward"):
        loss = model(batch).square().mean()
        time.sleep(float(sys.argv[1]))
    with monitor.phase("backward"):
        loss.backward()
    with monitor.phase("optimizer"):
        optimizer.step()
        optimizer.zero_grad()
    monitor.end_step(loss)
monitor.close()
"""


def test_a_sleep_that_was_added_is_found_and_the_runs_took_turns(tmp_path: Path) -> None:
    """10 ms a step and 15: two thirds as fast, within 10 %; one pair decides it."""
    (tmp_path / "loop.py").write_text(LOOP, encoding="utf-8")

    ended = typed(
        tmp_path, "prove", "loop.py 0.010", "loop.py 0.015", "--to-the-end", "--format", "json"
    )

    assert len(ended.stdout.splitlines()) == 1
    schema = json.loads((SCHEMAS / "comparison.json").read_text(encoding="utf-8"))
    Draft202012Validator(schema).validate(json.loads(ended.stdout))
    (found,) = json.loads(ended.stdout)
    assert (found["verdict"], found["decision"]) == ("slower", "discard")
    assert found["proof"]["pairs"] == 1
    assert found["proof"]["ended_by"] == "decided"
    assert found["noise"]["source"] == "assumed"
    assert found["speedup"]["value"] == pytest.approx(10 / 15, rel=0.1)
    assert "pair 1 of at most 10" in ended.stderr
    assert "pair 2" not in ended.stderr
    assert not (tmp_path / "unused").exists()
    run = read(tmp_path / "runs/prove/after-1/trainperf/steps-rank0.jsonl")
    assert len(run.gap_s(Gap.OTHERS_TURN.label)) >= 7
    tagged = [step.index for step in run.steps if step.tags & Tag.TURN_BOUNDARY]
    assert tagged == list(range(0, 80, 10))


@pytest.mark.slow
def test_a_large_change_ends_the_trainings_early(tmp_path: Path) -> None:
    """Half an hour of training each: some dozens of turns are enough."""
    (tmp_path / "loop.py").write_text(LOOP.replace("* 80", "* 200_000"), encoding="utf-8")

    ended = typed(tmp_path, "prove", "loop.py 0.003 200000", "loop.py 0.009 200000")

    assert "slower" in ended.stdout
    assert "trainings were ended" in " ".join(ended.stdout.split())
    assert len(read(tmp_path / "runs/prove/before-1/trainperf/steps-rank0.jsonl").steps) < 20_000


FAILED = {
    # The other one is not waited for.
    "at once": (
        {"loop.py": LOOP, "fails.py": "raise ValueError('no such learning rate')"},
        ("loop.py 60", "fails.py"),
        "runs/prove/after-1: the training ended with exit code 1: ValueError: no such learning",
    ),
    "nothing trains": (
        {"nothing.py": "print('done')"},
        ("nothing.py", "nothing.py"),
        "did not take turns: no process of the script loaded PyTorch",
    ),
    "fewer steps than a turn": (
        {"loop.py": LOOP.replace("* 80", "* 3")},
        ("loop.py 0.001", "loop.py 0.001"),
        "was over within its first turn of 10 steps; train for more of them, or give --every",
    ),
}
"""Scripts, what is typed, and what is told last."""


@pytest.mark.parametrize("case", FAILED)
def test_a_training_that_fails_or_takes_no_turns_ends_it_with_the_reason(
    case: str, tmp_path: Path
) -> None:
    """Quoted from what it printed, with where all of that is."""
    scripts, arguments, words = FAILED[case]
    for name, script in scripts.items():
        (tmp_path / name).write_text(script, encoding="utf-8")

    ended = typed(tmp_path, "prove", *arguments, code=2)

    last = ended.stderr.splitlines()[-1]
    assert words in last
    assert last.endswith("-1/output.txt") is ("exit code" in last)


WITH_CHILD = """
import subprocess, sys
with open(sys.argv[3], "w") as file:
    file.write(str(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
def test_no_stopped_child_is_left_of_a_training_that_is_ended(tmp_path: Path) -> None:
    """It stands still in the other's turn, and its parent ends without continuing it.

    The other one fails inside its fit, in its second turn.
    """
    (tmp_path / "child.py").write_text(WITH_CHILD + LOOP, encoding="utf-8")
    (tmp_path / "loop.py").write_text(LOOP, encoding="utf-8")

    ended = typed(
        tmp_path, "prove", "child.py 0.001 80 child", "loop.py 0.001 3", "--every", "2", code=2
    )

    assert "exit code 1: ValueError: no memory (File " in ended.stderr.splitlines()[-1]
    child = Path("/proc") / (tmp_path / "child").read_text() / "stat"
    for _ in range(100):
        if not child.exists() or child.read_text().rpartition(") ")[2].startswith("Z"):
            return
        time.sleep(0.05)
    raise AssertionError(child.read_text())


@pytest.mark.parametrize(("program", "signalled"), [("", 0), ("import time; time.sleep(60)", 1)])
def test_a_process_group_is_signalled_only_while_it_is_known_to_be_ours(
    program: str, signalled: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After its training was waited for, its number may be somebody else's."""
    groups: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, _: groups.append(group))
    with subprocess.Popen([sys.executable, "-c", program], start_new_session=True) as training:
        if not signalled:
            training.wait()
        end_trainings([training], signal.SIGTERM)
        end_trainings([training], signal.SIGTERM)

    assert groups == [training.pid] * signalled


EPISODES = """
import sys, time
import torch
from trainperf.loop import LoopMonitor

model = torch.nn.Linear(4, 1)
monitor = LoopMonitor("unused", report=False).watch(model)
for number, batch in enumerate(monitor.batches([torch.ones(2, 4)] * 240)):
    model(batch).sum().backward()
    time.sleep(0.004)
    monitor.end_step()
    if number % int(sys.argv[1]) == 0:
        time.sleep(0.08)
monitor.close()
"""


@pytest.mark.slow
def test_validation_less_often_is_found_by_the_fit(tmp_path: Path) -> None:
    """Every tenth step and every eightieth: 12 ms a step and 5; the steady step is the same."""
    (tmp_path / "loop.py").write_text(EPISODES, encoding="utf-8")

    ended = typed(tmp_path, "prove", "loop.py 10", "loop.py 80", "--to-the-end", "--format", "json")

    (found,) = json.loads(ended.stdout)
    assert found["verdict"] == "faster"
    assert found["primary"] == "fit_step_s"
    assert found["speedup"]["value"] == pytest.approx(12.8 / 5.6, rel=0.15)


@pytest.mark.slow
def test_ctrl_c_ends_both_trainings(tmp_path: Path) -> None:
    """Nothing is left running; before the first turn there is nothing to say."""
    (tmp_path / "loop.py").write_text("import time; time.sleep(600)", encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "-m", "trainperf", "prove", "loop.py", "loop.py"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as proof:
        assert "pair 1" in proof.stderr.readline()
        proof.send_signal(signal.SIGINT)
        assert proof.wait(30) == 130


LIGHTNING_RANKS = """
import sys, time
import lightning.pytorch as pl
import torch
from torch.utils.data import DataLoader, TensorDataset

class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 1)
    def training_step(self, batch, index):
        time.sleep(float(sys.argv[1]))
        return self.layer(batch[0]).square().mean()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)

if __name__ == "__main__":
    rows = DataLoader(TensorDataset(torch.randn(480, 8)), batch_size=4, num_workers=1)
    quiet = dict(logger=False, enable_checkpointing=False, enable_progress_bar=False)
    trainer = pl.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=2, **quiet)
    trainer.fit(Model(), rows)
"""


@pytest.mark.slow
def test_ranks_that_a_trainer_launches_take_turns(tmp_path: Path) -> None:
    """The second is a child of the first, and no worker of its loader."""
    (tmp_path / "ranks.py").write_text(LIGHTNING_RANKS, encoding="utf-8")

    ended = typed(
        tmp_path, "prove", "ranks.py 0.005", "ranks.py 0.03", "--pairs", "1", "--format", "json"
    )

    (found,) = json.loads(ended.stdout)
    assert found["before"]["world_size"] == 2
    for rank in (0, 1):
        run = read(tmp_path / f"runs/prove/before-1/trainperf/steps-rank{rank}.jsonl")
        assert len(run.gap_s(Gap.OTHERS_TURN.label)) >= 5
