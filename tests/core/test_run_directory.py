"""A run has a directory of its own, and what is there is never overwritten."""

import os
from pathlib import Path

import pytest

from trainperf.core import run_directory, spool


RESTARTS = "TORCHELASTIC_RESTART_COUNT"


def made_by_a_run(base: Path, name: str, at: float) -> Path:
    """A directory as a run leaves it."""
    path = base / name
    path.mkdir(parents=True)
    run_directory.record_file(path, 0).write_bytes(b"{}\n")
    os.utime(path, (at, at))
    return path


def test_runs_are_numbered_and_never_shared(tmp_path: Path) -> None:
    """Three runs, three directories; the first has no number."""
    made = [run_directory.create(tmp_path / "logs").name for _ in range(3)]

    assert made == ["trainperf", "trainperf-1", "trainperf-2"]


def test_a_file_of_that_name_is_not_overwritten(tmp_path: Path) -> None:
    """Whatever it is, it is not ours."""
    (tmp_path / "trainperf").write_text("mine")

    assert run_directory.create(tmp_path).name == "trainperf-1"
    assert (tmp_path / "trainperf").read_text() == "mine"


def test_a_base_that_is_a_file_is_refused(tmp_path: Path) -> None:
    """With an error the caller turns into one warning."""
    (tmp_path / "base").write_text("mine")

    with pytest.raises(OSError, match="base"):
        run_directory.create(tmp_path / "base")


def test_the_newest_run_is_the_latest(tmp_path: Path) -> None:
    """By time, not by name; a directory without records is no run."""
    names = ("trainperf", "trainperf-2", "trainperf-10")
    runs = [made_by_a_run(tmp_path, name, at=1000) for name in names]
    (tmp_path / "trainperf-11").mkdir()

    for at, run in enumerate(runs, start=2000):
        os.utime(run, (at, at))
        assert run_directory.latest(tmp_path) == run
    assert run_directory.latest(tmp_path / "nowhere") is None


def test_a_restart_goes_on_in_the_run_it_restarts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a record file of its own beside the first one."""
    first = made_by_a_run(tmp_path, "trainperf", at=1000)
    monkeypatch.setenv(RESTARTS, "2")

    assert run_directory.choose(tmp_path) == first
    assert (
        run_directory.record_file(first, 3, run_directory.attempt()).name
        == "steps-rank3.attempt2.jsonl"
    )


def test_a_second_fit_of_a_restarted_process_has_a_run_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record file would be the first one's, which is never overwritten: nothing is recorded."""
    first = made_by_a_run(tmp_path, "trainperf", at=1000)
    monkeypatch.setenv(RESTARTS, "1")

    chosen = run_directory.choose(tmp_path)
    run_directory.record_file(chosen, 0, run_directory.attempt()).write_bytes(b"{}\n")

    assert chosen == first
    assert run_directory.choose(tmp_path).name == "trainperf-1"


def test_a_restart_without_a_run_begins_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt may have died before its first line."""
    monkeypatch.setenv(RESTARTS, "1")

    assert run_directory.choose(tmp_path).name == "trainperf"


def test_without_a_restart_a_new_run_begins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the last one has only just ended."""
    made_by_a_run(tmp_path, "trainperf", at=1000)
    monkeypatch.delenv(RESTARTS, raising=False)

    assert run_directory.choose(tmp_path).name == "trainperf-1"
    assert run_directory.record_file(tmp_path, 0).name == "steps-rank0.jsonl"


def test_only_an_empty_directory_is_discarded(tmp_path: Path) -> None:
    """A fit that never began leaves nothing; one that did keeps all."""
    empty, used = run_directory.create(tmp_path), made_by_a_run(tmp_path, "trainperf-1", at=1000)

    for run in (empty, used):
        spool.discard_empty(run)
    assert [path.name for path in tmp_path.iterdir()] == ["trainperf-1"]
