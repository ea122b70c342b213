"""How a trace comes to the disk."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from torch_tb_profiler.consts import WORKER_PATTERN

from trainperf.recording.profiling.tracer import write_trace


TEXT = b'{"traceEvents": [' + b'{"ph": "X"},' * 1000 + b"0]}\n"


STEM = "rank3-step000120-3steps"


def export(path: Path) -> None:
    """What the profiler writes."""
    path.write_bytes(TEXT)


def write(run: Path, export: Callable[[Path], None], *, max_bytes: int = 1 << 20) -> Path | None:
    """Write one trace of the run."""
    return write_trace(run / "traces", STEM, export, max_bytes)


def test_a_trace_is_packed_and_nothing_else_is_left(tmp_path: Path) -> None:
    """One file of that name."""
    trace = write(tmp_path, export)

    assert [trace] == list((tmp_path / "traces").iterdir())
    assert trace.name == "rank3-step000120-3steps.trace.json.gz"
    assert gzip.decompress(trace.read_bytes()) == TEXT


def test_the_tensorboard_plugin_picks_up_neither_trace_nor_draft(tmp_path: Path) -> None:
    """It is given normalised copies; the originals contain faults that it stumbles over."""
    drafts = []

    def watched(path: Path) -> None:
        export(path)
        drafts.extend(draft.name for draft in path.parent.iterdir())

    trace = write(tmp_path, watched)

    names = [*drafts, trace.name]
    assert len(names) == 2
    assert not any(WORKER_PATTERN.match(name) for name in names)


def test_the_limit_is_of_the_packed_file_to_the_byte(tmp_path: Path) -> None:
    """A file of exactly the limit is kept; of one byte more nothing is left."""
    trace = write(tmp_path, export)
    size = trace.stat().st_size

    assert write(tmp_path / "enough", export, max_bytes=size) is not None
    assert write(tmp_path / "short", export, max_bytes=size - 1) is None
    assert list((tmp_path / "short" / "traces").iterdir()) == []


def test_a_restarted_job_does_not_overwrite_the_same_steps(tmp_path: Path) -> None:
    """Its trace gets a number."""
    names = [trace.name for _ in range(3) if (trace := write(tmp_path, export)) is not None]

    assert names == [f"{STEM}{number}.trace.json.gz" for number in ("", "-2", "-3")]


def test_half_a_trace_is_an_error_and_is_not_kept(tmp_path: Path) -> None:
    """The profiler says nothing when the disk is full."""

    def cut_short(path: Path) -> None:
        path.write_bytes(TEXT[: len(TEXT) // 2])

    with pytest.raises(OSError, match="not written whole; is the disk full"):
        write(tmp_path, cut_short)

    assert list((tmp_path / "traces").iterdir()) == []


def test_an_export_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """Not even its draft."""

    def fails(path: Path) -> None:
        path.write_bytes(b"{")
        raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match="planted"):
        write(tmp_path, fails)

    assert list((tmp_path / "traces").iterdir()) == []
