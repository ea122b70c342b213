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
    """Three runs, three directories, the first without a number; a file of that name stays."""
    (tmp_path / "trainperf-1").write_text("mine")
    made = [run_directory.create(tmp_path).name for _ in range(3)]

    assert made == ["trainperf", "trainperf-2", "trainperf-3"]
    assert (tmp_path / "trainperf-1").read_text() == "mine"


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


@pytest.mark.parametrize(
    ("restarts", "before", "chosen", "records"),
    [
        # With a record file of its own beside the first one.
        (2, True, "trainperf", "steps-rank3.attempt2.jsonl"),
        # The first attempt may have died before its first line.
        (1, False, "trainperf", "steps-rank3.attempt1.jsonl"),
        # Even if the last one has only just ended.
        (0, True, "trainperf-1", "steps-rank3.jsonl"),
    ],
)
def test_a_restart_goes_on_in_the_run_it_restarts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    restarts: int,
    chosen: str,
    records: str,
    *,
    before: bool,
) -> None:
    """A second fit of its process has a run of its own: nothing that was recorded is lost."""
    if before:
        made_by_a_run(tmp_path, "trainperf", at=1000)
    monkeypatch.setenv(RESTARTS, str(restarts))

    run, attempt = run_directory.choose(tmp_path), run_directory.attempt()
    run_directory.record_file(run, 0, attempt).write_bytes(b"{}\n")

    assert run.name == chosen
    assert run_directory.record_file(run, 3, attempt).name == records
    assert run_directory.choose(tmp_path) != run


def test_only_an_empty_directory_is_discarded(tmp_path: Path) -> None:
    """A fit that never began leaves nothing; one that did keeps all."""
    empty, used = run_directory.create(tmp_path), made_by_a_run(tmp_path, "trainperf-1", at=1000)

    for run in (empty, used):
        spool.discard_empty(run)
    assert [path.name for path in tmp_path.iterdir()] == ["trainperf-1"]
