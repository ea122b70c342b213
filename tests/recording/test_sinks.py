"""Where records and readings go: whole lines, plain floats, names that exist."""

import errno
import io
import logging
from collections.abc import Mapping
from pathlib import Path

import pytest
from support.live import HostFit

from trainperf.core.steps.block import StepSchema
from trainperf.core.steps.codec import decode_entry, decode_info, decode_steps
from trainperf.core.steps.records import EndMark, RunInfo, Totals
from trainperf.meters.fold import Reading
from trainperf.recording.monitor import RunParts
from trainperf.recording.sinks.jsonl import JsonlSink
from trainperf.recording.sinks.loggers import CurveSink, Outputs


READINGS = {
    "step_s": Reading(value=0.05, unit="s", n=9),
    "overflow_rate": Reading(value=0, unit="1", n=9),
    "mfu": Reading(value=None, unit="1", reason="not measured"),
}


class Logged:
    """A logger that keeps what it is given."""

    def __init__(self) -> None:
        self.metrics: list[tuple[dict[str, float], int | None]] = []

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Keep."""
        self.metrics.append((metrics, step))


class Written:
    """A `SummaryWriter` that keeps what it is given."""

    def __init__(self) -> None:
        self.scalars: list[tuple[str, float, int]] = []

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None:
        """Keep."""
        self.scalars.append((tag, scalar_value, global_step))


# -- the run directory -------------------------------------------------------------------------


def test_a_record_file_reads_back_whole(tmp_path: Path) -> None:
    """Line 1 is the header, the last line the end mark, and every line is one value."""
    file = JsonlSink(tmp_path / "run" / "steps-rank0.jsonl")
    HostFit(sinks=[file], log_every=3).steps(20).finish()

    header, *lines = file.path.read_bytes().splitlines(keepends=True)
    info = decode_info(header)
    steps = [line for line in lines if line.startswith(b"[")]
    block, damaged = decode_steps(StepSchema(info.columns, info.device), steps)
    entries = [decode_entry(line) for line in lines if not line.startswith(b"[")]
    assert (len(block), damaged) == (20, 0)
    assert None not in entries
    assert isinstance(entries[-1], EndMark)
    assert isinstance(entries[-2], Totals)
    assert all(line.endswith(b"\n") for line in lines)


def test_what_was_flushed_is_on_disk(tmp_path: Path) -> None:
    """A process that is killed now has lost nothing of it; its header is there before a step."""
    file = JsonlSink(tmp_path / "steps-rank3.jsonl")
    fit = HostFit(sinks=[file], log_every=5, parts=RunParts(info=RunInfo(rank=3)))
    (line,) = file.path.read_bytes().splitlines()
    assert decode_info(line).rank == 3

    fit.steps(16)

    data = file.path.read_bytes()
    assert data.endswith(b"\n")
    assert data.count(b"\n[") == 15
    fit.finish()


def test_an_existing_record_file_is_not_touched(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Said once; training and the other sinks go on."""
    path = tmp_path / "steps-rank0.jsonl"
    path.write_bytes(b"mine")
    fit = HostFit(sinks=[JsonlSink(path)], log_every=2).steps(20).finish()

    assert path.read_bytes() == b"mine"
    assert len(fit.sink.records) == 20
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "run directory" in caplog.text


class FullDisk(io.RawIOBase):
    """A file on a disk that has *room* bytes left."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.data = b""

    def writable(self) -> bool:
        """It is open for writing."""
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        """As much as there is room for, as the operating system does it."""
        taken = bytes(data)[: self.room]
        if not taken:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.room -= len(taken)
        self.data += taken
        return len(taken)


class OnFullDisk(JsonlSink):
    """A record file on a disk that runs full."""

    def __init__(self, path: Path, disk: FullDisk) -> None:
        super().__init__(path)
        self.disk = disk

    def begin(self, info: RunInfo) -> None:
        """Write to the full disk from here."""
        super().begin(info)
        super().close()
        self._file = io.BufferedWriter(self.disk)


@pytest.mark.parametrize("room", [0, 100, 20_000])
def test_a_full_disk_is_said_once_and_training_goes_on(
    tmp_path: Path, room: int, caplog: pytest.LogCaptureFixture
) -> None:
    """What is there is readable up to the last whole line."""
    disk = FullDisk(room)
    sink = OnFullDisk(tmp_path / "steps-rank0.jsonl", disk)
    fit = HostFit(sinks=[sink], log_every=5).steps(1000).finish()

    assert len(fit.sink.records) == 1000
    assert len(caplog.records) == 1
    assert "No space left" in caplog.text
    assert list(fit.monitor.guard.faults) == ["run directory"]
    assert len(disk.data) == room
    schema = StepSchema(fit.sink.info.columns)
    whole = [line for line in disk.data.split(b"\n")[:-1] if line.startswith(b"[")]
    block, damaged = decode_steps(schema, whole)
    assert (len(block), damaged) == (len(whole), 0)


# -- readings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("ranks", "prefix"), [(1, "trainperf/"), (2, "trainperf/rank0/")])
def test_a_writer_gets_one_point_per_reading_that_has_a_value(ranks: int, prefix: str) -> None:
    """As plain floats, at the step they were taken; of several ranks rank 0 knows its own alone."""
    writer = Written()
    sink = CurveSink(Outputs(run=None, writer=writer))
    sink.begin(RunInfo(world_size=ranks))
    sink.readings(41, READINGS)

    assert writer.scalars == [(f"{prefix}step_s", 0.05, 41), (f"{prefix}overflow_rate", 0.0, 41)]
    assert {type(value) for _, value, _ in writer.scalars} == {float}


def test_loggers_get_one_call_each_at_the_users_step() -> None:
    """The step number their own curves are drawn over."""
    loggers = [Logged(), Logged()]
    sink = CurveSink(Outputs(run=None, loggers=loggers, step=lambda: 7))
    sink.begin(RunInfo())
    sink.readings(41, READINGS)
    sink.readings(42, {"mfu": READINGS["mfu"]})

    expected = {"trainperf/step_s": 0.05, "trainperf/overflow_rate": 0.0}
    assert [logger.metrics for logger in loggers] == [[(expected, 7)], [(expected, 7)]]


def test_readings_are_shown_every_so_many_steps() -> None:
    """Each window is its own, but what is of the whole fit; none is shown without a new step."""
    fit = HostFit(log_every=10).steps(60).finish()
    shown: list[tuple[int, Mapping[str, Reading]]] = list(fit.sink.shown)

    assert [step for step, _ in shown] == [10, 20, 30, 40, 50, 59]
    assert [readings["first_step_s"].n for _, readings in shown] == [1] * 6
    whole = [readings["data_wait_all_fraction"].n for _, readings in shown]
    assert whole == [10, 20, 30, 40, 50, 60]
    assert {readings["first_step_s"].value for _, readings in shown} == {fit.sink.records[0].wall_s}
    # Thirteen steps are warm-up: the first of an epoch does not help to see its end.
    assert [readings["data_wait_fraction"].n for _, readings in shown] == [0, 7, 10, 10, 10, 10]
