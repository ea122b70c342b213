"""Several ranks, one run directory, and nobody who waits for ever."""

import logging
from pathlib import Path
from unittest.mock import Mock

import pytest

from trainperf.core import run_directory
from trainperf.core.run_directory import record_file
from trainperf.recording.shared_run import shared_run_directory


SOON_NS = 60_000_000


@pytest.mark.usefixtures("one_rank")
def test_all_ranks_write_where_rank_0_does(tmp_path: Path) -> None:
    """Run by run, in the order of each rank."""
    runs = [shared_run_directory(tmp_path, 0, 3) for _ in range(2)]

    assert [path.name for path in runs if path] == ["trainperf", "trainperf-1"]
    for rank in (1, 2):
        assert [shared_run_directory(tmp_path, rank, 3) for _ in range(2)] == runs


@pytest.mark.usefixtures("one_rank")
def test_rank_0_waits_for_nobody(tmp_path: Path) -> None:
    """The others may have no monitor."""
    assert shared_run_directory(tmp_path, 0, 2, patience_ns=0) == tmp_path / "trainperf"


@pytest.mark.usefixtures("one_rank")
def test_without_rank_0_a_rank_goes_on_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """After a while, in a directory of its own, with the remedy."""
    (tmp_path / "trainperf").mkdir()
    with caplog.at_level(logging.WARNING):
        run = shared_run_directory(tmp_path, 1, 2, patience_ns=SOON_NS)

    assert run == tmp_path / "trainperf-1"
    assert "rank 0 has begun no run" in caplog.text
    assert "attach trainperf on every rank" in caplog.text


@pytest.mark.usefixtures("one_rank")
def test_a_run_that_has_ended_is_not_joined(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Rank 0 has had a run that this rank had not: numbering is off, and that is said."""
    first = shared_run_directory(tmp_path, 0, 2)
    record_file(first, 0).write_bytes(b'{"kind":"run"}\n{"kind":"end","steps":3}\n')

    assert shared_run_directory(tmp_path, 1, 2) == tmp_path / "trainperf-1"
    assert "has ended already" in caplog.text


@pytest.mark.usefixtures("one_rank")
def test_where_rank_0_cannot_write_nobody_does(tmp_path: Path) -> None:
    """One warning on rank 0, and no directories beside each other."""
    (tmp_path / "base").write_text("a file")

    assert shared_run_directory(tmp_path / "base", 0, 2) is None
    assert shared_run_directory(tmp_path / "base", 1, 2, patience_ns=SOON_NS) is None


@pytest.mark.usefixtures("one_rank")
def test_where_rank_0_fails_nobody_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """E.g. by an error that a client of an object store has of its own."""
    with monkeypatch.context() as patched:
        patched.setattr(run_directory, "choose", Mock(side_effect=KeyError("no credentials")))
        with pytest.raises(KeyError):
            shared_run_directory(tmp_path, 0, 2)

    assert shared_run_directory(tmp_path, 1, 2, patience_ns=SOON_NS) is None
    assert not caplog.text


def test_one_rank_needs_no_store(tmp_path: Path) -> None:
    """There is no process group."""
    assert shared_run_directory(tmp_path, 0, 1) == tmp_path / "trainperf"
    assert shared_run_directory(None, 0, 1) is None
