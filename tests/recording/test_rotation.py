"""A record file of days is written in parts, which a process of its own packs."""

from pathlib import Path
from unittest.mock import Mock

import msgspec
import pytest
from support.blocks import row_of
from support.runs import MS, make_info, make_steps

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.core.run_directory import has_begun, has_ended, last_part, record_file
from trainperf.core.steps.block import StepBlock, StepSchema
from trainperf.core.steps.records import EndMark
from trainperf.recording.sinks import jsonl
from trainperf.recording.sinks.jsonl import JsonlSink


STEPS = 6000


def written(run: Path, most: int, *, packs: bool = True) -> JsonlSink:
    """What a fit of six thousand steps writes, in groups of fifty."""
    steps = make_steps(STEPS, facts={"loss": 0.5}, forward=30, backward=55)
    schema = StepSchema(("loss",))

    sink = JsonlSink(record_file(run, 0), most)
    sink.begin(msgspec.structs.replace(make_info(), columns=("loss",)))
    for begin in range(0, STEPS, 50):
        sink.rows([row_of(step, schema) for step in steps[begin : begin + 50]])
        sink.flush()
        if not packs:
            assert len(read(run)) == begin + 50
    sink.entries([EndMark(reason="finished", fit_ns=85 * MS * STEPS, steps=STEPS)])
    sink.close()
    return sink


def read(run: Path) -> list[float]:
    """Numbers of the steps, in order."""
    entries = Run.open(run).attempts[0][0].entries()
    blocks = [entry for entry in entries if isinstance(entry, StepBlock)]
    return [index for block in blocks for index in block.index.tolist()]


def test_a_full_part_is_left_and_packed_while_the_next_is_written(tmp_path: Path) -> None:
    """The run reads as if it were one file, and its end is found in its last part."""
    written(tmp_path, most=150_000)

    first = record_file(tmp_path, 0)
    assert list(tmp_path.glob("*.packed"))
    assert not first.exists()
    assert has_begun(first)
    assert last_part(first) != first
    assert has_ended(first)
    assert read(tmp_path) == list(range(STEPS))
    summary = summarize(Run.open(tmp_path))
    assert (summary.run.steps, summary.run.state, summary.warnings) == (STEPS, "finished", ())


def test_no_step_is_missing_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever reads after each flush has all that was flushed, packed by then or not."""
    monkeypatch.setattr(jsonl, "_LAST_S", 60.0)
    written(tmp_path, most=300_000, packs=False)


def test_without_a_process_to_pack_the_lines_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training goes on, and the next time packs them too."""
    monkeypatch.setattr(jsonl, "start_child", Mock(side_effect=OSError("no process left")))
    written(tmp_path, most=150_000)
    assert not list(tmp_path.glob("*.packed"))
    assert read(tmp_path) == list(range(STEPS))
