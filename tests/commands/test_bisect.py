"""`trainperf bisect`: the first slow commit of a planted history."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import typed

from trainperf.commands import main


pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="no git")

TRAIN = """
import time
import torch
from settings import SLEEP_S
from trainperf.loop import LoopMonitor

assert open("data/rows.txt").read() == "rows"
open("written.txt", "w").write("by a training")
open("settings.py", "a").write("# scribbled")
torch.manual_seed(0)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
monitor = LoopMonitor("unused", report=False).watch(model, optimizer)
for batch in monitor.batches([torch.ones(2, 4)] * 400):
    loss = model(batch).square().mean()
    time.sleep(SLEEP_S)
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    monitor.end_step(loss)
monitor.close()
"""


def git(place: Path, *arguments: str) -> str:
    """What git prints in a repository that nobody's settings reach."""
    mine = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}
    who = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "init.defaultBranch=main"]
    done = subprocess.run(
        ["git", "-C", str(place), *who, *arguments],  # noqa: S607 as people call it
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **mine},
    )
    return done.stdout.strip()


def history(place: Path, *settings: str) -> list[str]:
    """A repository of a commit for each content of one file; their hashes, the first one first."""
    place.mkdir()
    git(place, "init", "-q")
    (place / ".gitignore").write_text("data/\n*.ckpt\n")
    (place / "train.py").write_text(TRAIN)
    hashes = []
    for number, content in enumerate(settings):
        (place / "settings.py").write_text(content)
        git(place, "add", "-A")
        git(place, "commit", "-q", "-m", f"commit {number}", "--allow-empty")
        hashes.append(git(place, "rev-parse", "HEAD"))
    (place / "data").mkdir()
    (place / "data" / "rows.txt").write_text("rows")
    (place / "last.ckpt").write_text("an output")
    return hashes


FAST, BROKEN, SLOW = "SLEEP_S = 0.01\n", "(", "SLEEP_S = 0.04\n"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("settings", "code", "answer", "told"),
    [
        ((FAST, SLOW), 0, "“commit 1” is the first slow commit.", ()),
        ((FAST, FAST), 1, "“commit 1” is not slower than ", ()),
        (
            (FAST, FAST, BROKEN, SLOW),
            3,
            "The first slow commit is one of 2: ",
            ("“commit 2”: skip, ", "SyntaxError", "“commit 1”: fast, "),
        ),
    ],
)
def test_a_sleep_planted_in_a_commit_is_found(
    settings: tuple[str, ...], code: int, answer: str, told: tuple[str, ...], tmp_path: Path
) -> None:
    """Trained for real, in turns: next to a commit that does not train either may be it.

    The user's checkout is left as it was, whatever a training writes.
    """
    place = tmp_path / "repository"
    hashes = history(place, *settings)
    status = git(place, "status", "--porcelain", "--ignored")
    limit = ("--slower", "90%") if code == 1 else ()

    ended = typed(
        place,
        "bisect",
        *(hashes[0], "HEAD", "--out", str(tmp_path / "runs"), "--link", "data", *limit),
        *("--", "train.py"),
        code=code,
    )

    assert answer in " ".join(ended.stdout.split())
    assert all(words in ended.stderr for words in told)
    assert (f"git show {hashes[-1][:10]}" in ended.stdout) is (code != 1)
    assert git(place, "status", "--porcelain", "--ignored") == status
    assert len(git(place, "worktree", "list").splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("HEAD~1", "HEAD"), "no COMMAND"),
        (("HEAD~1", "--", "train.py"), "required: BAD"),
        (("HEAD", "HEAD", "--", "train.py"), "was both fast and slow"),
        (("HEAD", "HEAD~1", "--", "train.py"), "Maybe you mistook fast and slow revs?"),
        (("nowhere", "HEAD", "--", "train.py"), "nowhere"),
        (("--python", "x", "--", "train.py"), "--python is gone: trainperf prove 'old"),
        (("--format", "json", "HEAD~1", "HEAD", "--", "x.py"), "--format is gone: the first line"),
        (("HEAD~1", "HEAD", "--", "other.py"), "can't open file"),
    ],
)
def test_what_cannot_be_searched_is_refused_in_one_line(
    arguments: tuple[str, ...],
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """And leaves no worktree, and no word in the user's repository."""
    place = tmp_path / "repository"
    history(place, "SLEEP_S = 1", "SLEEP_S = 2")
    monkeypatch.chdir(place)
    monkeypatch.setattr(sys, "argv", ["trainperf", "bisect", *arguments])

    assert main() == 2

    refused = capsys.readouterr()
    assert why in refused.err.splitlines()[-1]
    assert refused.out == ""
    assert len(git(place, "worktree", "list").splitlines()) == 1
    assert git(place, "for-each-ref", "refs/bisect") == ""
