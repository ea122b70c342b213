"""After the fit: rank 0 waits for the others' last line, writes the summary, prints the report."""

import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.live import HostFit

from trainperf.analysis.summary.schema import Summary
from trainperf.core.run_directory import record_file
from trainperf.core.steps.records import RunInfo
from trainperf.loop.report import WAIT_NS, close_run
from trainperf.recording.monitor import RunParts
from trainperf.recording.sinks.jsonl import JsonlSink
from trainperf.recording.sinks.loggers import Outputs
from trainperf.reports.layout.markdown import as_markdown
from trainperf.reports.run.document import run_document


def closed(run: Path, ranks: int = 1, writer: Any = None) -> Summary:
    """What is written when a fit is closed that prints nothing."""
    close_run(run, ranks=ranks, aloud=False, outputs=Outputs(run=run, writer=writer))
    return msgspec.json.decode((run / "summary.json").read_bytes(), type=Summary)


def ended(run: Path, rank: int = 0, attempt: int = 0) -> None:
    """A rank that has closed its file."""
    HostFit(sinks=[JsonlSink(record_file(run, rank, attempt))]).steps(40).finish()


def test_the_summary_is_written_and_the_report_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the directory it can be read from again."""
    ended(tmp_path)
    close_run(tmp_path, ranks=1, aloud=True, outputs=Outputs())
    out = capsys.readouterr().out

    summary = msgspec.json.decode((tmp_path / "summary.json").read_bytes(), type=Summary)
    assert summary.readings["step_s"].value == pytest.approx(0.001, rel=0.002)
    assert out.startswith("\ntrainperf ·")
    assert out.endswith(f"{tmp_path}\n")


def test_a_report_is_printed_where_the_summary_finds_no_room(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All numbers are there; the caller's guard says that the file is not."""
    ended(tmp_path)
    (tmp_path / "summary.json").mkdir()  # also a superuser can put no file in its place
    with pytest.raises(OSError, match="summary"):
        close_run(tmp_path, ranks=1, aloud=True, outputs=Outputs())

    assert "Step time 1.00 ms" in capsys.readouterr().out


def test_after_a_restart_only_this_attempt_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The killed one will never end its file."""
    for rank in range(2):
        ended(tmp_path, rank)
    killed = record_file(tmp_path, 1)
    killed.write_bytes(b"".join(killed.read_bytes().splitlines(keepends=True)[:-1]))
    ended(tmp_path, 0, attempt=1)
    ended(tmp_path, 1, attempt=1)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    begun = time.perf_counter_ns()
    close_run(tmp_path, ranks=2, aloud=False, outputs=Outputs())

    assert time.perf_counter_ns() - begun < WAIT_NS


class Board:
    """A writer that keeps what it is given."""

    def __init__(self) -> None:
        self.texts: dict[str, tuple[str, int]] = {}
        self.scalars: dict[str, tuple[float, int]] = {}

    def add_text(self, tag: str, text_string: str, global_step: int) -> None:
        """Keep it."""
        self.texts[tag] = (text_string, global_step)

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Keep it."""
        self.scalars[tag] = (scalar_value, global_step)


def test_a_writer_gets_the_report_as_markdown(tmp_path: Path) -> None:
    """As Lightning's TensorBoard logger does; the curves of one rank are there already."""
    ended(tmp_path)
    board = Board()
    summary = closed(tmp_path, writer=board)

    assert board.texts == {"trainperf/summary": (as_markdown(run_document(summary)), 40)}
    assert board.scalars == {}


def test_a_writer_without_texts_is_left_alone(tmp_path: Path) -> None:
    """Only scalars are asked of it."""
    ended(tmp_path)

    class Scalars:
        """The least that a writer has."""

        add_scalar = Board.add_scalar

    assert closed(tmp_path, writer=Scalars()).run.steps == 40


def test_of_several_ranks_the_readings_of_all_come_last(tmp_path: Path) -> None:
    """Under the plain tags: live ones are rank 0's, and say so."""
    for rank in range(2):
        sinks = [JsonlSink(record_file(tmp_path, rank))]
        parts = RunParts(info=RunInfo(rank=rank, world_size=2))
        HostFit(sinks=sinks, parts=parts).steps(40).finish()
    board = Board()
    summary = closed(tmp_path, 2, board)

    assert board.scalars["trainperf/step_s"] == (summary.readings["step_s"].value, 40)
