"""Changes of scripts that name trainperf nowhere: proved by `prove`, tried by `try`."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from support.commands import typed


MODEL = """
import sys, time
import torch
from torch.utils.data import DataLoader, Dataset

torch.set_num_threads(1)
torch.manual_seed(0)
NAP_S = float(sys.argv[1])

class Rows(Dataset):
    def __len__(self):
        return 4 * STEPS
    def __getitem__(self, place):
        return {"x": torch.full((8,), float(place % 3)), "labels": torch.tensor(place % 2)}

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)
    def forward(self, x, labels):
        if not torch.is_autocast_enabled("cpu"):
            time.sleep(NAP_S)
        logits = self.layer(x)
        loss = torch.nn.functional.cross_entropy(logits.float(), labels)
        return {"loss": loss, "logits": logits}
"""

PLAIN = """
model = Model()
optimizer = torch.optim.SGD(model.parameters(), lr=0.001)
for batch in DataLoader(Rows(), batch_size=4):
    loss = model(**batch)["loss"]
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""

HUGGING_FACE = """
from transformers import Trainer, TrainingArguments
arguments = TrainingArguments(
    "out", per_device_train_batch_size=4, num_train_epochs=1, report_to="none", use_cpu=True,
    save_strategy="no", disable_tqdm=True, remove_unused_columns=False,
)
Trainer(Model(), arguments, train_dataset=Rows()).train()
"""

COARSE = sys.version_info < (3, 12)
"""Whether nothing tells when a DataLoader is asked."""

pytestmark = [pytest.mark.slow]

SCRIPTS = pytest.mark.parametrize("loop", [PLAIN, HUGGING_FACE], ids=["plain", "hugging face"])


def written(place: Path, loop: str, steps: int = 60) -> None:
    """The script, as its author wrote it."""
    (place / "train.py").write_text(MODEL.replace("STEPS", str(steps)) + loop, encoding="utf-8")


def proved(place: Path, before: str, after: str) -> tuple[int, dict[str, Any]]:
    """Exit code and comparison of one pair of trainings to their ends."""
    scripts = [f"train.py {nap_s}" for nap_s in (before, after)]
    options = ("--pairs", "1", "--to-the-end", "--decide", "--format", "json")
    ended = typed(place, "prove", *scripts, *options, code=None, OMP_NUM_THREADS="1")
    assert ended.stdout, ended.stderr
    (comparison,) = json.loads(ended.stdout)
    return ended.returncode, comparison


@SCRIPTS
def test_a_planted_slowdown_of_an_unchanged_script_is_discarded(loop: str, tmp_path: Path) -> None:
    """Twice the nap, in turns; `compare` reads what it left."""
    written(tmp_path, loop)

    code, comparison = proved(tmp_path, "0.01", "0.02")

    assert (code, comparison["decision"], comparison["verdict"]) == (1, "discard", "slower")
    assert comparison["speedup"]["value"] < 0.75
    coarse = loop == PLAIN and COARSE
    assert comparison["before"]["coarse"] == coarse
    runs = [f"runs/prove/{side}-1/trainperf" for side in ("before", "after")]
    shown = typed(tmp_path, "compare", *runs).stdout
    assert "slower" in shown
    assert ("recorded from outside, coarsely" in " ".join(shown.split())) == coarse


def test_a_gain_is_kept_and_each_decision_has_its_exit_code(tmp_path: Path) -> None:
    """What is decided where nothing was changed, one pair cannot be held to."""
    written(tmp_path, PLAIN)
    codes = {"keep": 0, "discard": 1, "cannot tell": 3}

    assert proved(tmp_path, "0.02", "0.01")[0] == codes["keep"]
    code, comparison = proved(tmp_path, "0.01", "0.01")
    assert code == codes[comparison["decision"]]


@SCRIPTS
def test_what_would_help_an_unchanged_script_is_tried(loop: str, tmp_path: Path) -> None:
    """Its forward sleeps in full precision alone; what follows the training is not run."""
    written(tmp_path, loop + "\nprint('all is over')\n", steps=4000)
    only = ("autocast_bf16", "no_update", "free_loader")
    options = [word for name in only for word in ("--only", name)]

    ended = typed(
        tmp_path,
        *("try", "--minutes", "0.05", *options, "--format", "json", "train.py", "0.004"),
        OMP_NUM_THREADS="1",
    )

    trials = {trial["id"]: trial for trial in json.loads(ended.stdout)["trials"]}
    assert trials["autocast_bf16"]["verdict"] == "faster"
    assert trials["autocast_bf16"]["speedup"] > 2
    outside = loop == PLAIN
    assert ("nothing takes its batches over" in ended.stderr) == outside
    assert (trials["free_loader"]["verdict"] == "not applicable") == outside
    assert (trials["autocast_bf16"].get("loss_before") is None) == outside
    assert "all is over" not in (tmp_path / "runs/try/output.txt").read_text(encoding="utf-8")
