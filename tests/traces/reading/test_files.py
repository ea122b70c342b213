"""Files that are no whole trace: what can be used is used, the rest is refused in one line."""

import gzip
import os
import zlib
from pathlib import Path

import pytest
from support.trace_files import compact, labels, operators, read_bytes

from trainperf.core.errors import TraceError
from trainperf.traces.event_table import Losses
from trainperf.traces.reader import read
from trainperf.traces.reading.source import ReadLimits


BODY = compact(operators(3)).encode()
MANY = compact(operators(5_000)).encode()


def refused(path: Path, limits: ReadLimits | None = None) -> str:
    """What the reader says when it refuses a file."""
    with pytest.raises(TraceError) as caught:
        read(path, limits=limits)
    return str(caught.value)


NO_TRACES = {
    "empty": (b"", "it is empty"),
    "blank": (b" \n\t ", "it is empty"),
    "only a mark of UTF-8": (b"\xef\xbb\xbf", "it is empty"),
    "two bytes a character": (BODY.decode().encode("utf-16"), "does not start with { or ["),
    "a page": (b"<!DOCTYPE html>", "does not start with { or ["),
    "a picture": (b"\x89PNG\r\n\x1a\n\0\0", "does not start with { or ["),
    "one zero byte": (b"\0", "does not start with { or ["),
    "an empty object": (b"{}", "no events"),
    "an empty list": (b"[]", "no events"),
    "no events in it": (b'{"traceEvents":[],"rank":1}', "no events"),
    "events are no list": (b'{"traceEvents":{"a":1}}', "no events"),
    "events are null": (b'{"traceEvents":null}', "no events"),
    "other JSON": (b'{"loss":[1.0,2.0]}', "no events"),
    "a list of numbers": (b"[1,2,3]", "no events"),
    "only an opening bracket": (b"{", "no events"),
    "a key without a value": (b'{"traceEvents"', "no events"),
    "only metadata events": (b'[{"ph":"M","name":"process_name","pid":1}]', "no events"),
    "cut before the first event ends": (BODY[: BODY.index(b'"op0"')], "no events"),
    "brackets without end": (b"[" * 1_000_000, "no events"),
    "objects without end": (b'{"a":' * 1_000_000, "no events"),
    "quotes without end": (b'{"' * 1_000_000, "no events"),
    "commas without end": (b"[" + b"," * 3_000_000, "no events"),
}


@pytest.mark.parametrize(("body", "why"), NO_TRACES.values(), ids=NO_TRACES.keys())
def test_what_is_no_trace_is_refused_in_one_line(tmp_path: Path, body: bytes, why: str) -> None:
    """The message names the file and what is wrong with it."""
    path = tmp_path / "trace.json"
    path.write_bytes(body)

    said = refused(path)

    assert said.startswith(str(path))
    assert why in said
    assert "\n" not in said


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """The path is in the message, because it is what the user typed."""
    assert "does not exist" in refused(tmp_path / "absent.json")


def test_a_folder_and_a_pipe_are_refused_without_opening_them(tmp_path: Path) -> None:
    """Opening a pipe would wait for ever."""
    os.mkfifo(tmp_path / "pipe.json")

    assert "no file" in refused(tmp_path)
    assert "no file" in refused(tmp_path / "pipe.json")


@pytest.mark.parametrize("keep", [0.3, 0.5, 0.9, 0.999])
def test_a_truncated_gzip_is_used_as_far_as_it_goes(tmp_path: Path, keep: float) -> None:
    """A copy that broke off has a beginning; the loss is said."""
    packed = gzip.compress(MANY)
    path = tmp_path / "trace.json.gz"
    path.write_bytes(packed[: int(len(packed) * keep)])

    table = read(path)

    assert 0 < len(table) <= 5_000
    assert labels(table) == [f"op{number}" for number in range(len(table))]
    assert table.losses == Losses(truncated=True)


PACKED = gzip.compress(BODY)
CONFIGURED = BODY.replace(b'{"schema', b'{"config": "say "yes"{[ \x01 C:\\x", "schema', 1)

WHOLE = {
    # Parallel packers write members; together they are the file.
    "a gzip of several members": (gzip.compress(BODY[:100]) + gzip.compress(BODY[100:]), Losses()),
    # The checksum is missing; the document is not.
    "a gzip without its last bytes": (PACKED[:-8], Losses()),
    # It may be anything; it is not read.
    "a gzip and what stands behind it": (PACKED + b"anything", Losses(trailing=True)),
    # Tapes and block devices pad.
    "a gzip and zeros": (PACKED + bytes(512), Losses()),
    # Two traces in one file would count everything twice.
    "two documents": (BODY + b"\n" + BODY, Losses(trailing=True)),
    "two packed documents": (PACKED * 2, Losses(trailing=True)),
}


@pytest.mark.parametrize(("body", "losses"), WHOLE.values(), ids=WHOLE)
def test_one_document_is_read_and_what_else_there_is_is_said(
    tmp_path: Path, body: bytes, losses: Losses
) -> None:
    """Whether the file is named as packed or not."""
    for name in ("trace.json", "trace.json.gz"):
        table = read_bytes(tmp_path, body, name)

        assert labels(table) == ["op0", "op1", "op2"]
        assert table.losses == losses


def test_a_damaged_text_beside_the_events_does_not_hide_them(tmp_path: Path) -> None:
    """Configurations are written into traces as they are; the events behind them count."""
    assert labels(read_bytes(tmp_path, CONFIGURED)) == ["op0", "op1", "op2"]


@pytest.mark.parametrize(
    ("limits", "enough", "why"),
    [
        ({"unpacked_bytes": 100_000}, {"unpacked_bytes": len(MANY)}, "more than"),
        ({"events": 4_999}, {"events": 5_000}, "more than 4,999 events"),
        ({"text_characters": 10_000}, {}, "names"),
    ],
)
def test_what_memory_has_no_room_for_is_refused(
    tmp_path: Path, limits: dict[str, int], enough: dict[str, int], why: str
) -> None:
    """Tiny events by the million fit in a small file; whoever has the memory may raise a limit."""
    path = tmp_path / "trace.json"
    path.write_bytes(MANY)

    assert why in refused(path, ReadLimits(**limits))
    assert len(read(path, limits=ReadLimits(**enough))) == 5_000


@pytest.mark.slow
def test_an_event_larger_than_anything_real_ends_the_reading(tmp_path: Path) -> None:
    """A quote that is missing makes one text of the rest; that must not be held for ever."""
    packer = zlib.compressobj(6, wbits=31)
    head = BODY[: BODY.rindex(b"]")] + b',{"ph":"X","name":"'
    noise = os.urandom(2**19).hex().encode()
    path = tmp_path / "trace.json.gz"
    path.write_bytes(
        packer.compress(head) + b"".join(packer.compress(noise) for _ in range(80)) + packer.flush()
    )

    table = read(path)

    assert labels(table) == ["op0", "op1", "op2"]
    assert table.losses.truncated
