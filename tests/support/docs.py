"""A small world in which every block of the documentation runs: names, runs, traces, a script."""

import os
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import torch
from lightning.pytorch import LightningModule
from support import logs
from support.runs import RankSpec, make_info, make_run, make_run_dir, make_steps
from torch import nn
from torch.utils.data import DataLoader

from trainperf.core.paths import AnyPath


ROOT = Path(__file__).parents[2]
TRACES = Path(os.environ.get("TRAINPERF_TRACES", ROOT.parent / "shared" / "traces"))
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))

RUNS = (
    *("runs/a", "runs/b", "before", "after", "main", "pull-request", "lightning_logs/version_0"),
    *(f"{name}{number}" for name in ("before", "after") for number in (1, 2, 3)),
)
TRACED = {
    "resnet50.pt.trace.json.gz": "resnet50_v100_workers0.pt.trace.json.gz",
    "before.pt.trace.json.gz": "resnet50_v100_workers0.pt.trace.json.gz",
    "after.pt.trace.json.gz": "list_root_2021.pt.trace.json.gz",
    "trace.json.gz": "resnet50_v100_workers0.pt.trace.json.gz",
    "rank0-step000007-3steps.trace.json.gz": "ddp_v100_world1.pt.trace.json.gz",
    "runs/gpt2/traces/rank0-step000007-3steps.trace.json.gz": "ddp_v100_world1.pt.trace.json.gz",
    "traces": "dlrm_v100_8ranks",
}
"""Names in the documents, and which recorded trace stands for each."""

_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
"""Also those in tabs, which are indented."""
_COMMAND = re.compile(r"^(trainperf|bash) [^·]")


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    @property
    def commands(self) -> list[list[str]]:
        """Its lines that are commands, without what is said behind them.

        Those behind a `$`, or all of a block of nothing else; none in output.
        """
        lines = [line for line in self.text.splitlines() if line.strip()]
        typed = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
        if not typed and all(_COMMAND.match(line) for line in lines):
            typed = lines
        return [shlex.split(line, comments=True) for line in typed if _COMMAND.match(line)]


def blocks(page: Path) -> list[Block]:
    """The fenced blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text[: found.start()].count("\n") + 2, found[2], dedent(found[3]))
        for found in _BLOCK.finditer(text)
    ]


class Model(LightningModule):
    """What the pages call `model`: small, and it ends its fit by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Linear(8, 8)
        self.head = nn.Linear(8, 1)

    def forward(self, batch: torch.Tensor) -> torch.Tensor:
        """A number a row."""
        return self.head(self.backbone(batch))

    def training_step(self, batch: torch.Tensor) -> torch.Tensor:
        """The loss; enough after forty steps."""
        self.trainer.should_stop = self.global_step >= 40
        return self(batch).square().mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """SGD."""
        return torch.optim.SGD(self.parameters(), lr=0.01)


def names() -> dict[str, Any]:
    """What a page may use without having made it."""
    import lightning
    from lightning.pytorch import Trainer

    model = Model()
    optimizer = torch.optim.AdamW(model.parameters())
    rows = torch.randn(512, 8, generator=torch.Generator().manual_seed(0))

    def train_on(batch: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(batch).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    return {
        "L": lightning,
        "Trainer": Trainer,
        "torch": torch,
        "model": model,
        "optimizer": optimizer,
        "dataset": rows,
        "pad": torch.stack,
        "loader": DataLoader(rows, batch_size=8),  # type: ignore[arg-type]  # a tensor is a dataset
        "batch": rows[:8],
        **dict.fromkeys(("train_on", "train_one_step", "step", "plain_step"), train_on),
        "fused_step": train_on,
        "run": Path("runs/a"),
    }


def make_world(place: Path) -> None:
    """Runs, and a script that trains; the traces where they are at hand."""
    for name in RUNS:
        make_run(place / name / "trainperf", 60, forward=4.0, backward=5.0, data_wait=1.0)
    for rank in range(2):
        spec = RankSpec(steps=make_steps(60, forward=4.0), info=make_info(rank=rank, world_size=2))
        make_run_dir(place / f"machine{rank}" / "trainperf", [spec])
        titan = logs.torchtitan(logs.steady(60, logs.TITAN), rank=rank)
        (place / f"rank{rank}.jsonl").write_text(titan, encoding="utf-8")
    megatron = logs.megatron(logs.steady(400, logs.MEGATRON))
    (place / "train.log").write_text(megatron, encoding="utf-8")
    longer = SCRIPT.replace("max_steps=40", "max_steps=120")  # enough steady ones for an interval
    for folder, script in ((".", SCRIPT), ("main", longer), ("pull-request", longer)):
        (place / folder / "train.py").write_text(script, encoding="utf-8")
    for name in ("old", "new"):  # two environments that are one
        python = place / name / "bin" / "python"
        python.parent.mkdir(parents=True)
        python.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n', encoding="utf-8")
        python.chmod(0o755)
    for name, trace in TRACED.items():
        source = TRACES / trace
        if source.is_dir():
            shutil.copytree(source, place / name)
        elif source.is_file():
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).symlink_to(source.resolve())


def fill(bucket: AnyPath, place: Path) -> None:
    """Some of them in object storage."""
    for name in ("before", "after", "gpt2", "machine0", "machine1"):
        for records in (place / ("runs/a" if name == "gpt2" else name) / "trainperf").iterdir():
            (bucket / name / records.name).write_bytes(records.read_bytes())
    trace = place / "trace.json.gz"
    if trace.exists():
        (bucket / "traces" / trace.name).write_bytes(trace.read_bytes())


SCRIPT = """
import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader

from trainperf.lightning import TrainPerf


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 1)

    def training_step(self, batch):
        return self.layer(batch).square().mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


trainer = L.Trainer(
    max_steps=40, accelerator="cpu", enable_progress_bar=False, callbacks=[TrainPerf()]
)
trainer.fit(Model(), DataLoader(torch.randn(320, 4), batch_size=8))
"""
