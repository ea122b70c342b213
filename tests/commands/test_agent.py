"""The way of an agent by `docs/how-to/for-agents.md`: from a report to a change that is kept."""

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest


SCRIPT = """
import argparse
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

from trainperf.loop import LoopMonitor


class Slow(Dataset):
    def __init__(self, steps):
        self.rows = torch.randn(8 * steps, 64)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, place):
        time.sleep(0.001)  # reads and decodes
        return self.rows[place], place % 10


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    steps = parser.parse_args().steps
    torch.manual_seed(0)
    torch.set_num_threads(1)
    loader = DataLoader(Slow(steps), batch_size=8)
    model = nn.Linear(64, 10)
    optimizer = torch.optim.AdamW(model.parameters())
    with LoopMonitor("runs/a").watch(model, optimizer) as monitor:
        for inputs, labels in monitor.batches(loader):
            with monitor.phase("forward"):
                time.sleep(0.006)  # a device computes
                loss = nn.functional.cross_entropy(model(inputs), labels)
            with monitor.phase("backward"):
                loss.backward()
            with monitor.phase("optimizer"):
                optimizer.step()
                optimizer.zero_grad()
            monitor.end_step(loss)


if __name__ == "__main__":
    main()
"""
"""A batch takes 8 ms to make and 6 ms to train on, one after the other: workers would hide one."""


class Agent:
    """Types commands in a folder and reads nothing but exit codes and JSON."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.code = 0

    def types(self, *words: str) -> Any:
        """A command; its document, which is all that stands on stdout."""
        ended = subprocess.run(
            [sys.executable, "-m", "trainperf", *words, "--format", "json"]
            if words[0] != "try"
            else [sys.executable, "-m", "trainperf", "try", "--format", "json", *words[1:]],
            cwd=self.place,
            capture_output=True,
            encoding="utf-8",
            check=False,
            timeout=180,
        )
        self.code = ended.returncode
        assert ended.stdout, ended.stderr
        return json.loads(ended.stdout)


@pytest.mark.slow
@pytest.mark.real_clock
def test_an_agent_finds_tries_makes_and_proves_a_change(tmp_path: Path) -> None:
    """Report, explain, try, edit, prove: each step takes from the last what the page names."""
    before = tmp_path / "train.py"
    before.write_text(SCRIPT, encoding="utf-8")
    subprocess.run([sys.executable, "train.py"], cwd=tmp_path, check=True, stdout=subprocess.PIPE)
    agent = Agent(tmp_path)

    # 1. What is slow?
    finding = agent.types("report", "runs/a")["findings"][0]
    assert agent.code == 0
    assert finding["id"] == "data_wait"
    assert finding["gain_upper_bound"] > 1.3
    assert "workers_N" in finding["trials"]

    # 2. What does it mean?
    meaning = agent.types("explain", finding["id"])[0]
    assert meaning["wrong"]
    assert meaning["confirm"]

    # 3. What would it bring?  Only a change can be kept, a ceiling cannot.
    tried = agent.types(
        "try", "--minutes", "0.15", "--only", "workers_N", "train.py", "--steps=1500"
    )
    assert agent.code == 0
    changes = [t for t in tried["trials"] if t["kind"] == "change" and t["verdict"] == "faster"]
    best = max(changes, key=lambda trial: trial["speedup"])
    assert best["low"] > 1.1
    assert finding["id"] in best["rules"]

    # 4. Did it?  The line to write is written into a copy.
    settings = re.search(r"num_workers=\d+, persistent_workers=True", best["apply"])
    assert settings, best["apply"]
    changed = SCRIPT.replace("batch_size=8)", f"batch_size=8, {settings[0]})")
    assert changed != SCRIPT
    (tmp_path / "changed.py").write_text(changed, encoding="utf-8")
    (proof,) = agent.types("prove", "train.py", "changed.py", "--decide")
    assert agent.code == 0
    assert (proof["verdict"], proof["decision"]) == ("faster", "keep")
    assert proof["speedup"]["low"] > 1.0
    assert proof["parity"]["verdict"] != "differs"
