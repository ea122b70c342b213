"""`trainperf doctor` as a user runs it."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from support.doctor import NAMES, Planted

from trainperf.analysis.doctor import CHECKS
from trainperf.commands import main


Said = tuple[int, str, str]
Command = Callable[..., Said]

SLOW = Planted(
    phases_ms={"data_wait": 20.0, "forward": 30.0},
    config={"num_workers": 0},
    facts={"samples": 8},
)
SOUND = Planted(phases_ms={"data_wait": 0.5, "forward": 30.0}, facts={"samples": 8})

SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from support.doctor import Planted
print("training")
Planted(
    phases_ms={{"data_wait": 20.0, "forward": 30.0}}, facts={{"samples": 8}}
).write(Path({where!r}))
"""


@pytest.fixture
def doctor(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Command:
    """The command in this process: exit code, stdout, stderr, those of its children included."""
    monkeypatch.delenv("COLUMNS", raising=False)

    def run_command(*arguments: str | Path) -> Said:
        monkeypatch.setattr(sys, "argv", ["trainperf", "doctor", *map(str, arguments)])
        code = main()
        said = capfd.readouterr()
        return code, said.out, said.err

    return run_command


def script(path: Path, where: Path | str) -> Path:
    """A training script that leaves its run at *where*."""
    path.write_text(SCRIPT.format(tests=str(Path(__file__).parents[1]), where=str(where)))
    return path


def test_it_says_in_one_line_what_failed(doctor: Command, tmp_path: Path) -> None:
    """Then check by check."""
    SLOW.write(tmp_path / "gpt2" / "trainperf")
    code, out, err = doctor(tmp_path)

    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "trainperf doctor · gpt2"
    assert lines[2].endswith("Failed: loader.")
    (failed,) = (line for line in lines if line.startswith("  FAIL"))
    assert failed.startswith("  FAIL  4 The DataLoader does not make the device wait: 40 %")
    assert "     next DataLoader(num_workers=1, persistent_workers=True)" in lines


def test_json_is_the_contract(doctor: Command, tmp_path: Path) -> None:
    """Every check with five fields, and nothing else."""
    SLOW.write(tmp_path / "run")
    found = json.loads(doctor(tmp_path / "run", "--format", "json")[1])

    assert list(found) == ["schema", "checks"]
    assert [check["id"] for check in found["checks"]] == list(NAMES)
    for check in found["checks"]:
        assert set(check) == {"id", "title", "status", "evidence", "action"}
        assert check["status"] in {"pass", "fail", "not_applicable", "unknown"}


def test_markdown_has_an_item_for_every_check(doctor: Command, tmp_path: Path) -> None:
    """For a pull request."""
    SLOW.write(tmp_path / "run")
    out = doctor(tmp_path / "run", "--format", "markdown")[1]

    rows = [line for line in out.splitlines() if line.startswith("- ")]
    assert len([row for row in rows if "next:" not in row]) == len(CHECKS)
    assert f"- FAIL  4: {CHECKS[3].title}" in out


def test_strict_is_a_gate(doctor: Command, tmp_path: Path) -> None:
    """1 where a check failed, 0 where none did; the report is the same."""
    SLOW.write(tmp_path / "slow")
    SOUND.write(tmp_path / "sound")

    assert doctor(tmp_path / "slow", "--strict")[:2] == (1, doctor(tmp_path / "slow")[1])
    assert doctor(tmp_path / "sound", "--strict")[0] == 0


def test_a_baseline_decides_on_the_loss(doctor: Command, tmp_path: Path) -> None:
    """Of the same work."""
    facts = {"samples": 8, "loss": 2.0}
    Planted(facts=facts).write(tmp_path / "a")
    Planted(facts={**facts, "loss": 3.0}).write(tmp_path / "b")
    same = json.loads(doctor(tmp_path / "a", "--baseline", tmp_path / "a", "--format=json")[1])
    other = json.loads(doctor(tmp_path / "b", "--baseline", tmp_path / "a", "--format=json")[1])

    assert [found["checks"][-1]["status"] for found in (same, other)] == ["pass", "fail"]


def test_a_script_is_run_first_and_its_newest_run_checked(doctor: Command, tmp_path: Path) -> None:
    """Not the run that was there before; what it prints is kept out of the report."""
    SOUND.write(tmp_path / "runs" / "before" / "trainperf")
    train = script(tmp_path / "train.py", tmp_path / "runs" / "after" / "trainperf")
    code, out, err = doctor("--script", train, tmp_path / "runs", "--strict")

    assert code == 1
    assert out.startswith("trainperf doctor · train.py\n")
    assert "Failed: loader." in out
    assert "training" in err


def test_without_a_place_a_script_runs_in_an_empty_one(doctor: Command, tmp_path: Path) -> None:
    """What it leaves where it stands is checked, and gone afterwards."""
    code, out, _ = doctor("--script", script(tmp_path / "train.py", "here/trainperf"))

    assert code == 0
    assert "Failed: loader." in out
    assert not (tmp_path / "here").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "no RUN: give a run directory, or --script FILE"),
        (("{tmp}/nowhere",), "nowhere: no such file or directory"),
        (("{tmp}/run", "--baseline", "{tmp}/nowhere"), "nowhere: no such file or directory"),
        (("--script", "{tmp}/nowhere.py"), "nowhere.py: no such file"),
        (("--script", "{tmp}/fails.py"), "fails.py: ended with exit code 3 and wrote no run"),
        (("--script", "{tmp}/idle.py", "{tmp}/run"), "idle.py: wrote no run below"),
    ],
)
def test_unusable_input_is_said_in_one_line(
    doctor: Command, arguments: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    """Exit code 2, and nothing on stdout."""
    SOUND.write(tmp_path / "run")
    (tmp_path / "fails.py").write_text("raise SystemExit(3)")
    (tmp_path / "idle.py").write_text("")
    code, out, err = doctor(*(one.format(tmp=tmp_path) for one in arguments))

    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
