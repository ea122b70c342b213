"""`trainperf try`: changes are tried in a training that is thrown away."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from support.commands import Command, typed

from scripts.render_docs import SCHEMAS
from trainperf.commands._attempts import AttemptOptions, try_out
from trainperf.core.launch_environment import LaunchOptions, TrialLaunch


LOOP = """
import os
import sys
import time
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from trainperf.loop import LoopMonitor

torch.set_num_threads(1)
data = TensorDataset(torch.randn(4096, 8), torch.zeros(4096, dtype=torch.long))
model = nn.Linear(8, 4)
optimizer = torch.optim.AdamW(model.parameters())
monitor = LoopMonitor().watch(model, optimizer)
for step, (x, y) in enumerate(monitor.batches(DataLoader(data, batch_size=8))):
    logits = model(x)
    {within}
    loss = nn.functional.cross_entropy(logits.float(), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    monitor.end_step(loss)
monitor.close()
"""

FUSED = "optimizer.param_groups[0].get('fused')"


def written(place: Path, within: str = "pass") -> str:
    """A training with a line within its step, in a file."""
    (place / "train.py").write_text(LOOP.format(within=within), encoding="utf-8")
    return "train.py"


def attempt(place: Path, *arguments: str, code: int = 0) -> "subprocess.CompletedProcess[str]":
    """The command as a user types it."""
    return typed(place, "try", "--minutes", "0.02", *arguments, code=code)


def results(output: str) -> dict[str, dict[str, Any]]:
    """Trials by their ids, from the JSON."""
    return {trial["id"]: trial for trial in json.loads(output)["trials"]}


Ranked = tuple[Path, "subprocess.CompletedProcess[str]"]


@pytest.fixture(scope="module")
def ranked(tmp_path_factory: pytest.TempPathFactory) -> Ranked:
    """Trials of a script that says in which environment its steps are taken."""
    place = tmp_path_factory.mktemp("ranked")
    script = written(
        place, "step or print(os.environ['WANDB_MODE'], os.environ['COMET_AUTO_LOG_DISABLE'])"
    )
    chosen = ("--only", "optimizer_fused", "--only", "no_reduction")
    return place, attempt(place, "--format", "json", *chosen, script, "--lr=3")


def test_trials_are_ranked_and_one_run_directory_is_left(
    ranked: Ranked,
) -> None:
    """The JSON is the file of the run; progress and the script's own words are elsewhere.

    Trackers that can be silenced are: the training is thrown away, whatever the shell asks for.
    """
    place, ended = ranked

    (trials,) = (place / "runs").rglob("trials.json")
    document = json.loads(ended.stdout)
    assert document == json.loads(trials.read_text(encoding="utf-8"))
    schema = json.loads((SCHEMAS / "trials.json").read_text(encoding="utf-8"))
    Draft202012Validator(schema).validate(document)
    assert [trial["id"] for trial in document["trials"] if trial["pairs"]] == ["optimizer_fused"]
    assert document["script"] == "train.py --lr=3"
    assert document["baseline"]["step_s"] > 0
    assert "trainperf: optimizer_fused: " in ended.stderr
    assert "disabled 1\n" in (place / "runs/try/output.txt").read_text(encoding="utf-8")
    assert len(list((place / "runs").rglob("steps-rank0.jsonl"))) == 1


def test_a_trial_that_ends_the_script_costs_only_itself(tmp_path: Path) -> None:
    """It is started again without it; what was measured before is kept."""
    within = f"assert not {FUSED}, 'no fused optimizer here'"

    # Enough for both on a busy machine: the first would use a shorter time up.
    ended = attempt(
        tmp_path,
        *("--minutes", "0.1", "--only", "optimizer_fused", "--only", "no_update"),
        written(tmp_path, within),
    )

    assert "optimizer_fused ended the script (AssertionError: no fused" in ended.stderr
    (trials,) = (tmp_path / "runs").rglob("trials.json")
    found = results(trials.read_text(encoding="utf-8"))
    assert found["optimizer_fused"]["verdict"] == "failed"
    why = found["optimizer_fused"]["reason"]
    assert why.startswith("AssertionError: no fused optimizer here (File ")
    assert found["optimizer_fused"]["title"] == "AdamW with fused=True"
    assert found["no_update"]["pairs"] >= 8
    assert len([path for path in (tmp_path / "runs/try").iterdir() if path.is_dir()]) == 1


def test_what_can_be_tried_is_listed_and_what_did_not_apply_to_a_run(
    ranked: Ranked, command: Command
) -> None:
    """Nothing is started; a script is refused, because only its training knows."""
    place, _ = ranked
    (run,) = (place / "runs").rglob("trainperf")

    all_of_them = command("try", "--list")
    here = json.loads(command("try", "--list", "--format", "json", run).out)
    refused = command("try", "--list", place / "train.py")

    assert "autocast_bf16 AMP in bf16" in " ".join(all_of_them.out.split())
    why = {each["id"]: each["why_not"] for each in here}
    assert why["no_reduction"] == "one rank has nothing to reduce"
    assert why["optimizer_fused"] == ""
    assert refused.code == 2
    assert "give a run directory of it" in refused.err


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("print('done')", "nothing was tried: no process of the script loaded PyTorch"),
        (
            LOOP.format(within="assert step < 2, 'no third step'"),
            "ended before anything was tried: AssertionError: no third step",
        ),
    ],
    ids=["never trains", "fails"],
)
def test_a_script_without_a_trial_says_why_and_leaves_nothing(
    script: str, why: str, tmp_path: Path
) -> None:
    """In the words of its own exception."""
    (tmp_path / "train.py").write_text(script, encoding="utf-8")

    ended = attempt(tmp_path, "train.py", code=2)

    assert why in ended.stderr
    assert not (tmp_path / "runs/try").exists()


def test_a_script_that_stops_early_is_no_fault_of_a_trial(tmp_path: Path) -> None:
    """Its trials that had a turn are shown; it is not started again."""
    ended = attempt(tmp_path, "--minutes", "5", written(tmp_path, "if step == 60: break"))

    assert "the script ended before all trials had had their turn" in ended.stderr
    assert "started again" not in ended.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("within", "why"),
    [
        (f"{FUSED} and os.kill(os.getpid(), 9)", "ended by SIGKILL, as the system does"),
        (f"{FUSED} and time.sleep(60)", "nothing was heard of it for "),
    ],
)
def test_signals_and_silence_are_named(within: str, why: str, tmp_path: Path) -> None:
    """A trial may kill the process, or hang it."""
    script = tmp_path / written(tmp_path, within)
    options = AttemptOptions(
        words=[sys.executable, str(script)],
        out=tmp_path / "tried",
        launch=LaunchOptions(),
        trials=TrialLaunch(minutes=0.02, only=("optimizer_fused", "optimizer_foreach")),
        silent_s=4.0,
    )

    tried = try_out(options)

    of_id = {trial.id: trial for trial in tried.trials.trials}
    assert of_id["optimizer_fused"].verdict == "failed"
    assert of_id["optimizer_fused"].reason.startswith(why)
    assert of_id["optimizer_foreach"].counts


@pytest.mark.slow
def test_an_interrupt_ends_the_script_and_shows_what_is_known(tmp_path: Path) -> None:
    """Nothing keeps running."""
    script = written(tmp_path, "step or open('pid', 'w').write(str(os.getpid()))")
    process = subprocess.Popen(
        [sys.executable, "-m", "trainperf", "try", "--minutes", "9", script],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while not list((tmp_path / "runs").rglob("trials.json")) and time.monotonic() < deadline:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=60)

    assert process.returncode == 130, errors
    assert output.startswith("trainperf try · train.py")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text(encoding="utf-8")), 0)
