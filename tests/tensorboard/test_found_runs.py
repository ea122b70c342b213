"""Runs are found wherever they are below a log directory, and nothing else is."""

import os
from pathlib import Path

from support.tab import a_run

from trainperf.tensorboard.runs import find_runs


def test_runs_are_named_by_their_directory_without_the_last_trainperf(tmp_path: Path) -> None:
    """`trainperf-1` is another run of the same directory, and keeps its name."""
    a_run(tmp_path / "lightning_logs", "version_0")
    directory = a_run(tmp_path / "lightning_logs", "version_1")
    directory.rename(directory.with_name("trainperf-1"))

    found = find_runs([tmp_path])

    assert {run.id: run.name for run in found.values()} == {
        "lightning_logs/version_0/trainperf": "lightning_logs/version_0",
        "lightning_logs/version_1/trainperf-1": "lightning_logs/version_1/trainperf-1",
    }


def test_the_log_directory_may_be_the_run_itself(tmp_path: Path) -> None:
    """`tensorboard --logdir version_0/trainperf`."""
    found = find_runs([a_run(tmp_path, "version_0")])

    assert [(run.id, run.name) for run in found.values()] == [(".", "version_0")]


def test_the_run_that_was_written_last_comes_first(tmp_path: Path) -> None:
    """It is the one to look at."""
    for age, name in enumerate(("c", "a", "b")):
        file = a_run(tmp_path, name) / "steps-rank0.jsonl"
        os.utime(file, (1_000_000 - age, 1_000_000 - age))

    assert [run.name for run in find_runs([tmp_path]).values()] == ["c", "a", "b"]


def test_a_link_back_up_is_not_followed_for_ever(tmp_path: Path) -> None:
    """And a run behind two links is one run."""
    a_run(tmp_path, "first")
    (tmp_path / "first" / "again").symlink_to(tmp_path)

    assert list(find_runs([tmp_path])) == ["first/trainperf"]


def test_other_files_and_folders_are_no_runs(tmp_path: Path) -> None:
    """Traces, copies for other tools, and names that only begin like ours."""
    for place in ("traces", ".hidden", "wandb"):
        a_run(tmp_path / place, "x")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "steps-rank0.jsonl.bak").write_bytes(b"{}")

    assert find_runs([tmp_path]) == {}
    # TensorBoard may be started before the first run.
    assert find_runs([tmp_path / "later"]) == {}


def test_several_log_directories_keep_their_runs_apart(tmp_path: Path) -> None:
    """Ids carry the place of their directory."""
    a_run(tmp_path / "a", "same")
    a_run(tmp_path / "b", "same")

    found = find_runs([tmp_path / "a", tmp_path / "b"])

    assert sorted(found) == ["0:same/trainperf", "1:same/trainperf"]
