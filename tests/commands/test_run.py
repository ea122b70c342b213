"""`trainperf run`: a training is measured without a change to its script."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.docs import SCRIPT

from trainperf.core.launch_environment import VARIABLE
from trainperf.plugins.lightning_factory import callbacks


UNTOUCHED = SCRIPT.replace(", callbacks=[TrainPerf()]", "").replace(
    "from trainperf.lightning import TrainPerf\n", ""
)


def run(place: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """The command as a user types it."""
    return subprocess.run(
        [sys.executable, "-m", "trainperf", "run", *arguments],
        cwd=place,
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


def written(script: str, place: Path) -> str:
    """A script in a file."""
    (place / "train.py").write_text(script, encoding="utf-8")
    return "train.py"


def test_a_script_gets_its_own_arguments_and_gives_its_own_exit_code(tmp_path: Path) -> None:
    """What looks like an option of ours behind the script is the script's."""
    script = written("import sys\nprint(sys.argv[1:])\nsys.exit(3)", tmp_path)

    ended = run(tmp_path, script, "--out", "x", "--lr=3", "data")

    assert (ended.returncode, ended.stdout) == (3, "['--out', 'x', '--lr=3', 'data']\n")


def test_a_script_without_a_trainer_is_told_so(tmp_path: Path) -> None:
    """Nothing was measured, and the remedy is named."""
    ended = run(tmp_path, written("print('done')", tmp_path))

    assert (ended.returncode, ended.stdout) == (0, "done\n")
    assert (
        "no Lightning Trainer was created on this machine, so nothing was measured" in ended.stderr
    )
    assert "LoopMonitor" in ended.stderr


def test_what_is_no_script_is_refused_in_one_line(tmp_path: Path) -> None:
    """A file that is not there, a command that is not there, a step below zero."""
    refused = [
        run(tmp_path, "missing.py"),
        run(tmp_path, "no-such-command"),
        run(tmp_path, "--audit-at", "-1", written("", tmp_path)),
    ]

    assert [ended.returncode for ended in refused] == [2, 2, 2]
    said = [ended.stderr.splitlines() for ended in refused]
    assert [len(lines) for lines in said] == [1, 1, 1]
    assert said[0] == ["trainperf: missing.py: no such file; give the script that trains"]


def test_unasked_nothing_is_attached_and_nothing_is_imported() -> None:
    """Lightning asks at every Trainer of every user."""
    code = (
        "import sys; from trainperf.plugins.lightning_factory import callbacks; "
        "print(callbacks(), sorted(m for m in sys.modules if m in {'torch', 'lightning', 'numpy'}))"
    )
    environment = {name: value for name, value in os.environ.items() if name != VARIABLE}

    said = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        encoding="utf-8",
        env=environment,
        check=True,
    ).stdout

    assert said == "[] []\n"


@pytest.mark.parametrize(
    "asked",
    ["no JSON", "[]", "{}x", '{"audit_at": "twenty"}'],
)
def test_the_entry_point_never_raises(asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed trainperf cannot break anybody's training, whatever the variable holds."""
    monkeypatch.setenv(VARIABLE, asked)

    assert callbacks() == []


def test_a_part_that_cannot_be_loaded_harms_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a package that does not fit raises while it is imported."""

    def unfit(**options: object) -> object:
        raise RuntimeError(f"built for another version: {options}")

    monkeypatch.setenv(VARIABLE, "{}")
    monkeypatch.setattr("trainperf.lightning.callback.AutoTrainPerf", unfit)

    assert callbacks() == []


def test_ranks_on_other_machines_are_measured_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder of the command is on one machine only; a rank left out would make all wait."""
    monkeypatch.setenv(VARIABLE, '{"marker": "/no/such/folder/marker"}')

    assert len(callbacks()) == 1


def test_both_groups_of_lightning_lead_to_it() -> None:
    """`lightning` and `pytorch_lightning` ask by names of their own."""
    from importlib.metadata import entry_points

    for package in ("lightning.pytorch", "pytorch_lightning"):
        found = entry_points(group=f"{package}.callbacks_factory", name="trainperf")
        assert [one.value for one in found] == ["trainperf.plugins.lightning_factory:callbacks"]


@pytest.mark.slow
@pytest.mark.parametrize("script", [UNTOUCHED, SCRIPT], ids=["untouched", "with its own TrainPerf"])
def test_a_fit_is_measured_once(script: str, tmp_path: Path) -> None:
    """Beside a `TrainPerf` of the script's own it is a no-op: one run, of all steps."""
    ended = run(tmp_path, "--out", "out", written(script, tmp_path))

    assert ended.returncode == 0, ended.stderr
    runs = list(tmp_path.rglob("summary.json"))
    assert len(runs) == 1
    assert runs[0].is_relative_to(tmp_path / "out")
    records = list(tmp_path.rglob("steps-rank0.jsonl"))
    last = json.loads(records[0].read_text(encoding="utf-8").splitlines()[-1])
    assert last["steps"] == 40
    assert "no Lightning Trainer" not in ended.stderr
