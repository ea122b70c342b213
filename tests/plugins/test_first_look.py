"""`trainperf run` of whole scripts: what the look at a step finds, and that it changes nothing."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainperf.core.artifacts import read_document
from trainperf.core.artifacts.audit import StepAudit


pytestmark = pytest.mark.slow

BEGIN = """
import torch
from torch import nn
from torch.utils.data import DataLoader
torch.manual_seed(0)
rows = [(torch.full((8,), i % 3.0), torch.tensor(i % 2)) for i in range(96)]
model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 2))
loss_of = nn.functional.cross_entropy
"""

LOOP = """
def train(called, steps):
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _, (x, y) in zip(range(steps), DataLoader(rows, batch_size=4)):
        loss = loss_of(called(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""

END = """
import torch._dynamo.utils as counted
print("weights", [p.sum().item().hex() for p in model.parameters()])
print("graphs", dict(counted.counters["stats"]), dict(counted.counters["frames"]))
"""

CHECKPOINTED = """
from torch.utils.checkpoint import checkpoint
train(lambda x: model[2](checkpoint(model[:2], x.requires_grad_(), use_reentrant={})), 22)
"""

COMPILED = {
    "wrapped": 'train(torch.compile(model, backend="aot_eager"), 22)',
    "in place": 'model.compile(backend="aot_eager")\ntrain(model, 22)',
    "step": """
@torch.compile(backend="eager")
def step(x):
    return model(x)
train(step, 22)
""",
}

LIGHTNING = """
import lightning as L
class Lit(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = model
    def training_step(self, batch, number):
        return loss_of(self.model(batch[0]), batch[1])
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-2)
L.Trainer(accelerator="cpu", max_steps=22, enable_progress_bar=False, logger=False,
          enable_checkpointing=False).fit(Lit(), DataLoader(rows, batch_size=4))
"""

HUGGING_FACE = """
from transformers import Trainer, TrainingArguments
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = model
    def forward(self, x, labels):
        logits = self.model(x)
        return {"loss": loss_of(logits, labels), "logits": logits}
arguments = TrainingArguments(
    "out", per_device_train_batch_size=4, max_steps=22, report_to="none", use_cpu=True,
    save_strategy="no", disable_tqdm=True, remove_unused_columns=False,
)
named = [{"x": x, "labels": y} for x, y in rows]
Trainer(Model(), arguments, train_dataset=named%s).train()
"""

OWN = (
    """
from trainperf.huggingface import TrainPerfCallback
"""
    + HUGGING_FACE % ", callbacks=[TrainPerfCallback()]"
)


def launched(place: Path, *before: str) -> "subprocess.CompletedProcess[str]":
    """The script, with or without the command before it."""
    return subprocess.run(
        [sys.executable, *before, "train.py"],
        cwd=place,
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
    )


def looked(script: str, place: Path) -> tuple[Path, str]:
    """The run of a script that `trainperf run` changes nothing of, and its note on the audit."""
    (place / "train.py").write_text(BEGIN + LOOP + script + END, encoding="utf-8")
    said = [
        [line for line in launched(place, *before).stdout.splitlines() if line.startswith(SAID)]
        for before in ((), ("-m", "trainperf", "run", "--out", "looked"))
    ]
    assert said[0] == said[1]
    assert len(said[0]) == 2
    run = place / "looked" / "trainperf"
    facts = json.loads((run / "summary.json").read_text(encoding="utf-8"))["run"]
    assert not facts.get("faults")
    return run, facts["notes"]["audit"]


SAID = ("weights", "graphs")


@pytest.mark.parametrize(
    "script",
    ["train(model, 22)", LIGHTNING, HUGGING_FACE % "", OWN],
    ids=["plain", "Lightning", "Hugging Face", "a callback of its own"],
)
def test_the_operators_of_one_step_are_in_the_first_run(script: str, tmp_path: Path) -> None:
    """Forward, backward and update, and the training is what it was."""
    run, note = looked(script, tmp_path)

    audit = read_document(StepAudit, run)
    assert audit.step == 12
    assert {use.part for use in audit.operators} == {"forward", "backward", "optimizer"}
    assert note.startswith("step 12 was audited")


@pytest.mark.parametrize("reentrant", [False, True], ids=["without reentry", "reentrant"])
def test_what_checkpointing_repeats_is_told_apart(reentrant: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """As `recompute`."""
    run, _ = looked(CHECKPOINTED.format(reentrant), tmp_path)

    audit = read_document(StepAudit, run)
    assert "recompute" in {use.part for use in audit.operators}


@pytest.mark.parametrize("how", COMPILED)
def test_what_is_compiled_stays_compiled(how: str, tmp_path: Path) -> None:
    """As many graphs as before; a capture of one step has its operators."""
    run, note = looked(COMPILED[how], tmp_path)

    assert read_document(StepAudit, run) is None
    assert "torch.compile is in use" in note
    assert note.endswith("step 14 was captured instead")
    analysis = next((run / "traces").glob("*.analysis.json"))
    assert json.loads(analysis.read_text(encoding="utf-8"))["ranks"][0]["top_cpu_operators"]


def test_a_short_training_says_that_no_step_was_audited(tmp_path: Path) -> None:
    """Eleven steps are recorded of twelve."""
    _, note = looked("train(model, 12)", tmp_path)

    assert note == "no step was audited, the fit ended before step 12 was complete"
