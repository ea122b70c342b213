"""The version of the training script: its commit, and whether it was changed since."""

import shutil
import subprocess
from pathlib import Path

import pytest

from trainperf.recording import source_version as module
from trainperf.recording.source_version import source_version


GIT = shutil.which("git")
needs_git = pytest.mark.skipif(GIT is None, reason="no git here")
UNKNOWN = {"git_commit": None, "git_dirty": None}


def git(folder: Path, *arguments: str) -> str:
    """Run git there, as nobody in particular."""
    who = ("-c", "user.name=a", "-c", "user.email=a@b")
    command = [str(GIT), *who, "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One commit of one script, which is where we are."""
    git(tmp_path, "init", "-q")
    (tmp_path / "train.py").write_text("a = 1\n")
    git(tmp_path, "add", "train.py")
    git(tmp_path, "commit", "-q", "-m", "first")
    monkeypatch.setattr(module, "_folder", lambda: tmp_path)
    module._status.cache_clear()
    return tmp_path


@needs_git
def test_a_script_has_the_commit_that_it_is_at_and_is_dirty_once_it_was_changed(
    repository: Path,
) -> None:
    """Staged or not; nothing is written there, not even git's index, which people's look does."""
    index = repository / ".git" / "index"
    (repository / "notes.txt").write_text("what git does not know changes nothing")
    (repository / "train.py").touch()
    before, commit = index.read_bytes(), git(repository, "rev-parse", "HEAD")
    assert source_version() == {"git_commit": commit, "git_dirty": False}
    assert index.read_bytes() == before
    (repository / "train.py").write_text("a = 2\n")
    for _ in range(2):
        module._status.cache_clear()
        assert source_version() == {"git_commit": commit, "git_dirty": True}
        git(repository, "add", "train.py")


def test_a_script_outside_of_any_repository_has_no_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor has one whose git cannot be started."""
    monkeypatch.setattr(module, "_folder", lambda: tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    module._status.cache_clear()
    assert source_version() == UNKNOWN

    monkeypatch.setenv("PATH", str(tmp_path))
    module._status.cache_clear()
    assert source_version() == UNKNOWN


def test_a_git_that_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a file system that hangs the fit begins all the same."""
    slow = tmp_path / "git"
    slow.write_text("#!/bin/sh\nexec sleep 60\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(module, "_folder", lambda: tmp_path)
    module._status.cache_clear()

    assert source_version(patience_s=0.1) == UNKNOWN
