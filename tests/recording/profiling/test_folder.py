"""How a trace comes to the disk."""

import gzip
from pathlib import Path

import pytest
from torch_tb_profiler.consts import WORKER_PATTERN

from trainperf.recording.profiling.tracer import TraceFolder


TEXT = b'{"traceEvents": [' + b'{"ph": "X"},' * 1000 + b"0]}\n"


def folder(path: Path, *, rank: int = 0, max_bytes: int = 1 << 20) -> TraceFolder:
    """A folder that takes two traces."""
    return TraceFolder(path / "traces", rank=rank, max_bytes=max_bytes, max_traces=2)


def export(path: Path) -> None:
    """What the profiler writes."""
    path.write_bytes(TEXT)


def test_a_trace_is_packed_and_nothing_else_is_left(tmp_path: Path) -> None:
    """One file, with rank, first step and number of steps in its name."""
    name = folder(tmp_path, rank=3).write(120, 3, export)

    (written,) = (tmp_path / "traces").iterdir()
    assert written.name == name == "rank3-step000120-3steps.trace.json.gz"
    assert gzip.decompress(written.read_bytes()) == TEXT


def test_the_tensorboard_plugin_picks_up_neither_trace_nor_draft(tmp_path: Path) -> None:
    """It is given normalised copies; the originals contain faults that it stumbles over."""
    seen = []

    def watched(path: Path) -> None:
        export(path)
        seen.extend(found.name for found in path.parent.iterdir())

    traces = folder(tmp_path)
    traces.write(120, 3, watched)

    names = [*seen, *traces.written]
    assert len(names) == 2
    assert not any(WORKER_PATTERN.match(name) for name in names)


def test_a_trace_that_is_too_large_is_thrown_away(tmp_path: Path) -> None:
    """Nothing is left of it, it does not count, and the next one is written."""
    packed = len(gzip.compress(TEXT, 3))
    traces = folder(tmp_path, max_bytes=packed // 2)

    name = traces.write(1, 1, export)
    small = traces.write(2, 1, export_nothing)

    assert name is None
    assert traces.written == [small] == [path.name for path in (tmp_path / "traces").iterdir()]


def export_nothing(path: Path) -> None:
    """An empty trace."""
    path.write_bytes(b"{}")


def test_the_limit_is_of_the_packed_file_to_the_byte(tmp_path: Path) -> None:
    """A file of exactly the limit is kept, one byte more is not."""
    name = folder(tmp_path).write(1, 1, export)
    assert name is not None
    size = (tmp_path / "traces" / name).stat().st_size

    assert folder(tmp_path / "enough", max_bytes=size).write(1, 1, export) is not None
    assert folder(tmp_path / "short", max_bytes=size - 1).write(1, 1, export) is None


def test_it_is_full_after_as_many_as_allowed(tmp_path: Path) -> None:
    """Traces that were written count, whatever their steps."""
    traces = folder(tmp_path)
    traces.write(1, 1, export)
    half_full = traces.full
    traces.write(2, 1, export)

    assert (half_full, traces.full) == (False, True)


def test_a_restarted_job_does_not_overwrite_the_same_steps(tmp_path: Path) -> None:
    """Its trace gets a number."""
    folder(tmp_path).write(7, 3, export)

    assert folder(tmp_path).write(7, 3, export) == "rank0-step000007-3steps-2.trace.json.gz"


def test_half_a_trace_is_an_error_and_is_not_kept(tmp_path: Path) -> None:
    """The profiler says nothing when the disk is full."""

    def cut_short(path: Path) -> None:
        path.write_bytes(TEXT[: len(TEXT) // 2])

    with pytest.raises(OSError, match="not written whole; is the disk full"):
        folder(tmp_path).write(1, 1, cut_short)

    assert list((tmp_path / "traces").iterdir()) == []


def test_an_export_that_fails_leaves_nothing(tmp_path: Path) -> None:
    """Not even its draft."""

    def fails(path: Path) -> None:
        path.write_bytes(b"{")
        raise RuntimeError("planted")

    with pytest.raises(RuntimeError, match="planted"):
        folder(tmp_path).write(1, 1, fails)

    assert list((tmp_path / "traces").iterdir()) == []
