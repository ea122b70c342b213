"""`trainperf doctor` as a user runs it."""

import json
from pathlib import Path

from support.commands import Command
from support.doctor import NAMES, Planted

from trainperf.analysis.doctor import CHECKS


SLOW = Planted(
    phases_ms={"data_wait": 20.0, "forward": 30.0},
    config={"num_workers": 0},
    facts={"samples": 8},
)
SOUND = Planted(phases_ms={"data_wait": 0.5, "forward": 30.0}, facts={"samples": 8})


def test_every_form_says_what_failed_check_by_check(command: Command, tmp_path: Path) -> None:
    """In one line first; JSON is the contract, five fields a check; Markdown has an item each."""
    SLOW.write(tmp_path / "gpt2" / "trainperf")
    code, out, err = command("doctor", tmp_path)
    document = json.loads(command("doctor", tmp_path, "--format", "json").out)
    markdown = command("doctor", tmp_path, "--format", "markdown").out

    assert (code, err) == (0, "")
    lines = out.splitlines()
    assert lines[0] == "trainperf doctor · gpt2"
    assert lines[2].endswith("Failed: loader.")
    (failed,) = (line for line in lines if line.startswith("  FAIL"))
    assert failed.startswith("  FAIL  4 The DataLoader does not make the device wait: 40 %")
    assert "     next DataLoader(num_workers=1, persistent_workers=True)" in lines
    assert list(document) == ["schema", "checks"]
    assert [check["id"] for check in document["checks"]] == list(NAMES)
    for check in document["checks"]:
        assert set(check) == {"id", "title", "status", "evidence", "action"}
        assert check["status"] in {"pass", "fail", "not_applicable", "unknown"}
    rows = [line for line in markdown.splitlines() if line.startswith("- ")]
    assert len([row for row in rows if "next:" not in row]) == len(CHECKS)
    assert f"- FAIL  4: {CHECKS[3].title}" in markdown


def test_strict_is_a_gate(command: Command, tmp_path: Path) -> None:
    """1 where a check failed, 0 where none did; the report is the same."""
    SLOW.write(tmp_path / "slow")
    SOUND.write(tmp_path / "sound")

    assert command("doctor", tmp_path / "slow", "--strict")[:2] == (
        1,
        command("doctor", tmp_path / "slow")[1],
    )
    assert command("doctor", tmp_path / "sound", "--strict")[0] == 0


def test_a_baseline_decides_on_the_loss(command: Command, tmp_path: Path) -> None:
    """Of the same work."""
    facts = {"samples": 8, "loss": 2.0}
    Planted(facts=facts).write(tmp_path / "a")
    Planted(facts={**facts, "loss": 3.0}).write(tmp_path / "b")
    same, other = (
        json.loads(command("doctor", run, "--baseline", tmp_path / "a", "--format=json").out)
        for run in (tmp_path / "a", tmp_path / "b")
    )

    assert [found["checks"][-1]["status"] for found in (same, other)] == ["pass", "fail"]
