"""Scripts in each framework's own style, none of which names trainperf, under `trainperf run`."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from statistics import median

import pytest
from support.loops import Written, read

from trainperf.core.artifacts.lines import BEFORE_FIT, DATASET_MAP


pytestmark = pytest.mark.slow

HEARD = sys.version_info >= (3, 12)
"""Whether Python tells when a DataLoader is asked."""
OUTSIDE = "outside, loader heard" if HEARD else "outside"

NAP_S = 0.02
BATCH = 4

ROWS = """
import time
import torch
from torch.utils.data import DataLoader, Dataset

class Rows(Dataset):
    def __len__(self):
        return 96
    def __getitem__(self, place):
        time.sleep(0.005)
        return {"x": torch.full((8,), float(place % 3)), "labels": torch.tensor(place % 2)}

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(8, 2)
    def forward(self, x, labels):
        logits = self.layer(x)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}
"""

PLAIN = """
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for batch in DataLoader(Rows(), batch_size=4):
    loss = model(**batch)["loss"]
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
"""

PREPARING = """
def prepare():
    begun = time.perf_counter()
    while time.perf_counter() - begun < 4:
        sum(number * number for number in range(1000))
    print("prepared in", time.perf_counter() - begun, "s")

prepare()
"""

IN_THE_FIT = (
    PREPARING.removesuffix("prepare()\n")
    + """
import lightning

class Training(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = Model()
    def HOOK(self):
        prepare()
    def training_step(self, batch, number):
        return self.model(**batch)["loss"]
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)

lightning.Trainer(accelerator="cpu", max_epochs=2, logger=False).fit(
    Training(), DataLoader(Rows(), batch_size=4)
)
"""
)

MAPPING = """
import os, sys
sys.path.insert(0, os.path.abspath("site-packages"))
from datasets import Dataset

def tokenize(row):
    time.sleep(0.1)
    return row

begun = time.perf_counter()
Dataset(range(40)).map(tokenize)
print("mapped in", time.perf_counter() - begun, "s")
"""

DATASETS = {
    "__init__": "from datasets.arrow_dataset import Dataset",
    "fingerprint": """
fingerprint_warnings = {"update_fingerprint_transform_hash_failed": True}

def is_caching_enabled():
    return True
""",
    "arrow_dataset": """
import datasets.fingerprint

class Dataset(list):
    def map(self, function):
        return Dataset(self._map_single(function))

    def _map_single(self, function):
        for row in self:
            yield function(row)
""",
}
"""A stand-in for the package of that name, as far as anything of it is read."""

WITH_WORKERS = """
def main():
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(
        Rows(), 1, num_workers=2, multiprocessing_context="METHOD", persistent_workers=True
    )
    for _ in range(24):
        for batch in loader:
            model(**batch)["loss"].backward()
            optimizer.step()

if __name__ == "__main__":
    main()
"""

GRAIN = """
import time

class Batches:
    def __init__(self, rows):
        self.rows, self.place = rows, 0

    def __iter__(self):
        return self

    def __next__(self):
        time.sleep(0.02)
        self.place += 1
        if self.place > 80:
            raise StopIteration
        return self.rows[self.place]
"""

OF_GRAIN = """
import os, sys
sys.path.insert(0, os.path.abspath("site-packages"))
import grain

model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
for batch in grain.Batches(Rows()):
    model(batch["x"][None], batch["labels"][None])["loss"].backward()
    optimizer.step()
    optimizer.zero_grad()
"""

OWN_MONITOR = """
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
with LoopMonitor("runs") as monitor:
    for batch in monitor.batches(DataLoader(Rows(), batch_size=4)):
        loss = model(**batch)["loss"]
        loss.backward()
        optimizer.step()
        monitor.end_step(loss)
"""

ACCELERATE = """
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(Rows(), batch_size=4))
for batch in loader:
    with accelerator.accumulate(model):
        loss = model(**batch)["loss"]
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
"""

FABRIC = """
from lightning.fabric import Fabric
fabric = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")
model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
model, optimizer = fabric.setup(model, optimizer)
for batch in fabric.setup_dataloaders(DataLoader(Rows(), batch_size=4)):
    optimizer.zero_grad()
    fabric.backward(model(**batch)["loss"])
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

MEASURES_ITSELF = HUGGING_FACE.replace(
    "Trainer(Model(), arguments,",
    'Trainer(Model(), arguments, callbacks=[TrainPerfCallback(dirpath="own")],',
).replace("\n", "\nfrom trainperf.huggingface import TrainPerfCallback\n", 1)

DDP = """
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(Model())
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
batches = iter(DataLoader(Rows(), batch_size=2))
for step in range(16):
    for micro_step in range(2):
        batch = next(batches)
        model.require_backward_grad_sync = micro_step == 1
        loss = model(**batch)["loss"] / 2
        loss.backward()
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
dist.destroy_process_group()
"""

SPAWNED = """
import subprocess, sys

def train(epochs):
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    loader = DataLoader(Rows(), 4, num_workers=1, multiprocessing_context="spawn")
    for _ in range(epochs):
        for batch in loader:
            optimizer.zero_grad()
            model(**batch)["loss"].backward()
            optimizer.step()

if __name__ == "__main__":
    if len(sys.argv) == 1:
        subprocess.run([sys.executable, __file__, "inner"], check=True)
    train(1)
    if len(sys.argv) == 1:
        raise ValueError("after the training")
"""


def run(
    place: Path, script: str, *command: str, code: int = 0
) -> "subprocess.CompletedProcess[str]":
    """A script under the command as a user types it; it must end with that exit code."""
    (place / "train.py").write_text(ROWS + script, encoding="utf-8")
    with closing(socket.socket()) as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ended = subprocess.run(
        command or (sys.executable, "-m", "trainperf", "run", "--out", "runs", "train.py"),
        cwd=place,
        env={**os.environ, "MASTER_PORT": port, "PET_MASTER_PORT": port, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        encoding="utf-8",
        check=False,
        timeout=120,
    )
    assert ended.returncode == code, ended.stderr
    return ended


def recorded(place: Path, name: str = "trainperf", rank: int = 0) -> Written:
    """What a rank has left in the folder that the command names."""
    return read(place / "runs" / name / f"steps-rank{rank}.jsonl")


def test_an_audited_step_does_not_end_the_training(tmp_path: Path) -> None:
    """The step is over in a hook of its update, where the audit's own hooks are gone through."""
    command = (sys.executable, "-m", "trainperf", "run", "--out", "runs", "--audit-at", "8")
    run(tmp_path, PLAIN, *command, "train.py")

    assert (tmp_path / "runs" / "trainperf" / "audit.json").exists()


@pytest.mark.parametrize(
    ("script", "loop", "steps"),
    [
        (PLAIN, OUTSIDE, 23),
        (ACCELERATE, OUTSIDE, 23),
        (FABRIC, OUTSIDE, 23),
        (HUGGING_FACE, "huggingface", 24),
    ],
    ids=["plain", "accelerate", "fabric", "hugging face"],
)
def test_a_sleeping_loader_comes_back(script: str, loop: str, steps: int, tmp_path: Path) -> None:
    """As the wait for data, and as nothing else; a recording from outside begins after a step."""
    ended = run(tmp_path, script)

    run_ = recorded(tmp_path)
    config = {**run_.info.config, **run_.totals.config}
    assert (config["loop"], len(run_.steps)) == (loop, steps)
    assert NAP_S <= median(run_.phase_s("data_wait")) < 1.5 * NAP_S
    for other in ("forward", "backward", "optimizer"):
        assert 0 < median(run_.phase_s(other)) < NAP_S / 2
    assert ("coarse: recorded from outside" in ended.stdout) == (loop == "outside")
    heard = "recorded from outside: data wait is the time in the DataLoader"
    assert (heard in " ".join(ended.stdout.split())) == (HEARD and loop == OUTSIDE)
    assert "nothing was recorded" not in ended.stderr
    assert run_.info.config["precision"] == (
        "bf16-mixed" if script == FABRIC else "32" if script == HUGGING_FACE else "float32"
    )


@pytest.mark.parametrize("own", [False, True], ids=["command", "own monitor"])
def test_what_comes_before_the_first_step_comes_back_with_its_line(
    own: bool,  # noqa: FBT001 a fixture
    tmp_path: Path,
) -> None:
    """By the plant's own clock; loading modules is no part of it, and mapping a dataset is apart.

    A monitor in the script looks from where it is imported on.
    """
    package = tmp_path / "site-packages" / "datasets"
    package.mkdir(parents=True)
    for name, text in DATASETS.items():
        (package / f"{name}.py").write_text(text)
    script = PREPARING + MAPPING + (OWN_MONITOR if own else PLAIN)
    if own:
        imports = "from trainperf.loop import LoopMonitor\n"
        ended = run(tmp_path, imports + script, sys.executable, "train.py")
    else:
        ended = run(tmp_path, script)

    summary = json.loads((tmp_path / "runs" / "trainperf" / "summary.json").read_text("utf-8"))
    owners = {each["slot"]: each["owner"] for each in summary["lines"]}
    for did, slot, function in (
        ("prepared in ", BEFORE_FIT, "prepare"),
        ("mapped in ", DATASET_MAP, "tokenize"),
    ):
        planted_s = float(ended.stdout.partition(did)[2].split()[0])
        assert summary["run"]["before_s"][slot] == pytest.approx(planted_s, rel=0.2)
        assert owners[slot]["function"] == function
    assert summary["run"]["seen_from"] == ("trainperf" if own else "torch")
    assert summary["run"]["config"]["datasets_cache"] == "a function could not be hashed"


@pytest.mark.parametrize(
    ("hook", "slot", "finding"),
    [
        ("on_fit_start", "startup", "before_first_step"),
        ("on_train_epoch_end", "epoch_boundary", "epoch_boundary"),
        ("on_train_end", "shutdown", "shutdown"),
    ],
)
def test_what_a_script_does_beside_the_steps_of_a_fit_comes_back_with_its_line(
    hook: str, slot: str, finding: str, tmp_path: Path
) -> None:
    """In a hook of a Trainer it is no work of the framework's."""
    ended = run(tmp_path, IN_THE_FIT.replace("HOOK", hook))

    planted_s = sum(map(float, re.findall(r"prepared in (\S+) s", ended.stdout)))
    summary = json.loads((tmp_path / "runs" / "trainperf" / "summary.json").read_text("utf-8"))
    owner = next(each["owner"] for each in summary["lines"] if each["slot"] == slot)
    assert owner["function"] == "prepare"
    seen_s = owner["fraction"] * summary["ledger_s"][slot]
    assert seen_s == pytest.approx(planted_s, rel=0.2)
    first = summary["findings"][0]
    assert (first["id"], first["where"]) == (finding, owner["where"])


def test_a_library_that_makes_the_batches_is_named_and_left_what_it_is(tmp_path: Path) -> None:
    """It is met where no DataLoader is."""
    package = tmp_path / "site-packages" / "grain"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(GRAIN)
    run(tmp_path, OF_GRAIN)

    summary = json.loads((tmp_path / "runs" / "trainperf" / "summary.json").read_text("utf-8"))
    assert summary["run"]["config"]["loader_library"] == "Grain"
    waits = next(each for each in summary["findings"] if each["id"] == "data_wait")
    assert "DataLoader(" not in json.dumps(waits)
    assert waits["changes"][0]["advice"] == "Have Grain make more batches at once"


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_workers_that_are_no_forks_sample_themselves(method: str, tmp_path: Path) -> None:
    """They load torch, and so meet what the command has put on the path."""
    run(tmp_path, WITH_WORKERS.replace("METHOD", method))

    summary = json.loads((tmp_path / "runs" / "trainperf" / "summary.json").read_text("utf-8"))
    lines = json.loads((tmp_path / "runs" / "trainperf" / "lines.json").read_text("utf-8"))
    assert summary["run"]["config"]["worker_start"] == method
    assert sorted(worker["worker"] for worker in lines["workers"]) == [0, 1]
    assert len({worker["dataset"] for worker in lines["workers"]}) == 1
    making = {
        lines["places"][at][2]
        for slot, frames, *_ in lines["stacks"]
        if slot == "worker_making"
        for at in frames
    }
    assert making == {"Rows.__getitem__"}
    for worker in lines["workers"]:
        assert worker["making_s"] > 0
        assert worker["starting_s"] > 0
    # What a script waits for is nothing that it prepares.
    assert "before_first_step" not in {each["id"] for each in summary["findings"]}


def test_a_trainer_with_a_callback_of_its_own_is_measured_once(tmp_path: Path) -> None:
    """By that one."""
    ended = run(tmp_path, MEASURES_ITSELF)

    assert (tmp_path / "own" / "trainperf" / "summary.json").exists()
    assert not (tmp_path / "runs").exists()
    assert "nothing was recorded" not in ended.stderr


@pytest.mark.parametrize("inside", [False, True], ids=["around torchrun", "in each rank"])
def test_two_ranks_are_one_run(inside: bool, tmp_path: Path) -> None:  # noqa: FBT001
    """In one directory, with their micro-batches and one summary."""
    ours = ("-m", "trainperf", "run", "--out", "runs")
    torchrun = (str(Path(sys.executable).parent / "torchrun"), "--nproc-per-node", "2")
    if shutil.which(torchrun[0]) is None:
        pytest.skip("no torchrun here")
    command = (*torchrun, *ours, "train.py") if inside else (sys.executable, *ours, *torchrun)
    run(tmp_path, DDP, *(command if inside else (*command, "train.py")))

    ranks = [recorded(tmp_path, rank=rank) for rank in range(2)]
    assert [len(rank.steps) for rank in ranks] == [15, 15]
    assert {step.micro_batches for rank in ranks for step in rank.steps} == {2}
    assert [rank.end.reason for rank in ranks] == ["finished", "finished"]
    summary = json.loads((tmp_path / "runs" / "trainperf" / "summary.json").read_text())
    assert summary["run"]["world_size"] == 2


def test_workers_record_nothing_and_processes_that_train_do(tmp_path: Path) -> None:
    """Also one that the script starts, and one whose script fails afterwards, as it fails alone."""
    ended = run(tmp_path, SPAWNED, code=1)

    assert ended.stderr.splitlines()[-1] == "ValueError: after the training"
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        "trainperf",
        "trainperf-1",
    ]
    assert recorded(tmp_path).end.reason == "finished"
    assert recorded(tmp_path, "trainperf-1").end.reason == "ValueError"
