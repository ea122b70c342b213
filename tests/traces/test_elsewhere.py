"""Traces in object storage give what those on disk give; a broken transfer is no short trace."""

import gzip
import random
from pathlib import Path

import pytest
from support.object_store import ObjectStore, object_store
from support.trace_files import operator, text

from trainperf.core.errors import TraceError
from trainperf.traces.job_report import report
from trainperf.traces.reading import source
from trainperf.traces.reading.source import ReadLimits, Source


__all__ = ["object_store"]


def content(*, packed: bool) -> bytes:
    """A trace that takes several requests."""
    chance = random.Random(7)  # noqa: S311 no secret
    events = [operator(f"op{chance.random()}", 1000.5 + 100 * place) for place in range(9000)]
    trace = text(events).encode()
    return gzip.compress(trace, 0) if packed else trace


@pytest.mark.parametrize("name", ["rank3.pt.trace.json", "rank3.pt.trace.json.gz"])
def test_a_trace_in_a_bucket_reads_like_one_on_disk(
    name: str, tmp_path: Path, object_store: ObjectStore
) -> None:
    """By its own URL, and by that of the folder it is in."""
    trace = content(packed=name.endswith(".gz"))
    (tmp_path / name).write_bytes(trace)
    url = object_store.bucket / "traces" / name
    url.write_bytes(trace)

    local = report([tmp_path / name])

    assert len(trace) > 300_000
    assert report([url]) == report([url.parent]) == report([str(url)]) == local


def test_a_network_that_is_lost_while_reading_is_no_end_of_a_trace(
    object_store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Packed data that is cut just ends; this is refused."""
    monkeypatch.setattr(source, "REMOTE_BYTES", 1 << 16)
    url = object_store.bucket / "trace.json.gz"
    url.write_bytes(content(packed=True))
    blocks = Source(url, ReadLimits()).blocks()
    next(blocks)
    object_store.stop()

    with pytest.raises(TraceError, match=r"it cannot be read \(.*endpoint"):
        list(blocks)


def test_a_missing_trace_is_named_by_its_url(object_store: ObjectStore) -> None:
    """As on disk."""
    with pytest.raises(TraceError, match=r"^s3://records/none\.json: it does not exist"):
        report([object_store.bucket / "none.json"])
