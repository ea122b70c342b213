"""Names of the files in a run directory, and files that are written whole or not at all."""

from pathlib import Path

import pytest

from trainperf.core.run_directory import (
    ANALYSIS_SUFFIX,
    TRACE_SUFFIX,
    CaptureName,
    drafted,
    rank_and_attempt,
    record_file,
    trace_stem,
    write_atomically,
)


@pytest.mark.parametrize("attempt", [0, 3])
def test_a_record_file_says_whose_it_is(tmp_path: Path, attempt: int) -> None:
    """What writes and what reads agree on the name."""
    assert rank_and_attempt(record_file(tmp_path, 12, attempt).name) == (12, attempt)


@pytest.mark.parametrize("name", ["steps-rank0.jsonl.gz", "steps-rank.jsonl", "summary.json"])
def test_other_files_are_no_record_files(name: str) -> None:
    """The name must be whole."""
    assert rank_and_attempt(name) is None


@pytest.mark.parametrize("suffix", ["", TRACE_SUFFIX, ANALYSIS_SUFFIX, ".trace.json"])
def test_a_trace_and_its_analysis_say_which_steps_of_which_rank(suffix: str) -> None:
    """What the profiler writes, every reader understands."""
    name = CaptureName.parse(trace_stem(2, 40, 3) + suffix)
    assert name == CaptureName(
        rank=2, capture="step000040-3steps", first_step=40, steps=3, again=None
    )


def test_the_analysis_of_all_ranks_names_none() -> None:
    """And a restarted job that traced the same steps says so."""
    name = CaptureName.parse("step000040-3steps-2.analysis.json")
    assert (name.rank, name.capture, name.again) == (None, "step000040-3steps-2", 2)
    assert CaptureName.parse("worker.1699999999.pt.trace.json") is None


def test_a_writer_that_fails_leaves_the_old_file_and_no_draft(tmp_path: Path) -> None:
    """Readers see the old contents or the new, never half of them."""
    target = tmp_path / "summary.json"
    write_atomically(target, b"old")

    def fail_half_way() -> None:
        with drafted(target) as draft:
            draft.write_bytes(b"ne")
            raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        fail_half_way()
    assert [path.name for path in tmp_path.iterdir()] == ["summary.json"]
    assert target.read_bytes() == b"old"
