"""Damaged traces: what is sound is read, what is not is counted; nothing ends in a traceback."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.trace_files import (
    BESIDE,
    compact,
    labels,
    operator,
    operators,
    read_bytes,
    read_text,
    text,
)

from trainperf.traces.event_table import NONE, Losses


SOUND = ["op0", "op1", "op2"]
AROUND = operators(3)
"""The events that must survive what stands between the first and the second of them."""


def body_with(damaged: str, *, pretty: bool = False) -> str:
    """A trace in which one event is *damaged* text."""
    events = [AROUND[0], "HERE", *AROUND[1:]]
    whole = text(events, indent=1) if pretty else compact(events)
    return whole.replace('"HERE"', damaged)


def event_named(name: str) -> str:
    """An event whose name stands in the file as it is given."""
    return json.dumps(operator("NAME", 1050.0)).replace("NAME", name)


MENDED = {
    "raw newline": ("a\nb", "a\nb"),
    "raw tab and bell": ("a\tb\x07", "a\tb\x07"),
    "NUL": ("a\0b", "a\0b"),
    "path of Windows": (r"C:\Users\x\train.py", r"C:\Users\x" + "\train.py"),
    "path that ends in a backslash": ("C:\\dir\\", "C:\\dir\\"),
    "bare quotes": ('say "yes" twice', 'say "yes" twice'),
    "bare quote at the end": ('say "yes"', 'say "yes"'),
    "half of a surrogate pair": (r"x\ud800y", "x\ufffdy"),
    "other half": (r"x\udc00y", "x\ufffdy"),
    "escape that is cut": (r"\u12", r"\u12"),
}


@pytest.mark.parametrize("pretty", [False, True], ids=["compact", "pretty"])
@pytest.mark.parametrize(("raw", "meant"), MENDED.values(), ids=MENDED.keys())
def test_a_name_that_is_no_json_is_mended(
    tmp_path: Path, raw: str, meant: str, *, pretty: bool
) -> None:
    """Profilers wrote names as they came; the event keeps its times, and the loss is said."""
    table = read_text(tmp_path, body_with(event_named(raw), pretty=pretty))

    assert labels(table) == ["op0", meant, "op1", "op2"]
    assert table.losses == Losses(repaired_texts=1)


SAID = {
    # Latin-1 in a name costs the letter, not the event.
    "bytes of another encoding": (
        body_with(event_named("caf?")).encode().replace(b"caf?", b"caf\xe9"),
        ["op0", "caf\ufffd", "op1", "op2"],
        Losses(repaired_texts=1),
    ),
    # What stands behind it is lost, and the report does not hide that.
    "a bracket that ends the events too early": (
        body_with("]").encode(),
        ["op0"],
        Losses(truncated=True),
    ),
    # Profilers on Windows wrote its path as it was, behind the events.
    "a name of the trace that is no JSON": (
        compact(AROUND).replace('"t.json"', r'"C:\Users\x.json"').encode(),
        SOUND,
        Losses(),
    ),
}


@pytest.mark.parametrize(("body", "names", "losses"), SAID.values(), ids=SAID.keys())
def test_what_is_lost_is_said(
    tmp_path: Path, body: bytes, names: list[str], losses: Losses
) -> None:
    """And nothing else is lost."""
    table = read_bytes(tmp_path, body)

    assert labels(table) == names
    assert table.losses == losses


@pytest.mark.parametrize("number", ["NaN", "-Infinity", "Infinity", "nan", "inf", "9" * 5000])
def test_a_number_json_does_not_have_costs_its_field_only(tmp_path: Path, number: str) -> None:
    """Bandwidths and occupancies are written that way; no column is made of them."""
    damaged = json.dumps(operator("odd", 1050.0, stream="HERE")).replace('"HERE"', number)

    table = read_text(tmp_path, body_with(damaged))

    assert labels(table) == ["op0", "odd", "op1", "op2"]
    assert table.stream[1] == NONE


DROPPED = {
    "a number": "5",
    "null": "null",
    "a text": '"text"',
    "a list": '[{"ph":"X"}]',
    "no phase": '{"name":"x","ts":1,"dur":1}',
    "time is NaN": '{"ph":"X","name":"x","ts":NaN,"dur":1}',
    "time is null": '{"ph":"X","name":"x","ts":null,"dur":1}',
    "time is a word": '{"ph":"X","name":"x","ts":"soon","dur":1}',
    "time is true": '{"ph":"X","name":"x","ts":true,"dur":1}',
    "time is missing": '{"ph":"X","name":"x","dur":1}',
    "time is 23 digits long": '{"ph":"X","name":"x","ts":12345678901234567890123,"dur":1}',
    "time has a huge exponent": '{"ph":"X","name":"x","ts":1e999999999,"dur":1}',
    "time is a text with a huge exponent": '{"ph":"X","name":"x","ts":"1e999999999","dur":1}',
    "duration is negative": '{"ph":"X","name":"x","ts":1,"dur":-1}',
    "duration is missing": '{"ph":"X","name":"x","ts":1}',
    "duration is huge": '{"ph":"X","name":"x","ts":1,"dur":1e300}',
    "nested 100,000 deep": '{"ph":"X","name":"x","ts":1,"dur":1,"args":{"a":'
    + "[" * 100_000
    + "]" * 100_000
    + "}}",
    "torn": '{"ph":"X","name":"x","ts":1,"du',
    "key without a value": '{"ph":"X","name":,"ts":1,"dur":1}',
}


@pytest.mark.parametrize("damaged", DROPPED.values(), ids=DROPPED.keys())
def test_an_event_that_cannot_be_used_is_dropped_and_counted(tmp_path: Path, damaged: str) -> None:
    """Its neighbours stay, and the count is exact."""
    table = read_text(tmp_path, body_with(damaged))

    assert labels(table) == SOUND
    assert table.losses.dropped_events == 1
    assert not table.losses.truncated


KEPT = {
    "arguments are a list": '{"ph":"X","cat":"kernel","name":"odd","ts":1050,"dur":1,"args":[1]}',
    "arguments are null": '{"ph":"X","cat":"kernel","name":"odd","ts":1050,"dur":1,"args":null}',
    "fields are null": '{"ph":"X","cat":null,"name":"odd","pid":null,"tid":null,"ts":1050,'
    '"dur":1,"args":{"stream":null,"correlation":null}}',
    "ids are texts": '{"ph":"X","cat":"kernel","name":"odd","ts":1050,"dur":1,'
    '"args":{"stream":"seven","correlation":"x"}}',
    "ids are lists": '{"ph":"X","cat":"kernel","name":"odd","ts":1050,"dur":1,'
    '"args":{"stream":[7],"correlation":{"a":1}}}',
    "times are texts": '{"ph":"X","cat":"kernel","name":"odd","ts":"1050","dur":"1.000"}',
    "name is a number": '{"ph":"X","cat":"kernel","name":7,"ts":1050,"dur":1}',
}


@pytest.mark.parametrize("odd", KEPT.values(), ids=KEPT.keys())
def test_an_event_with_odd_fields_keeps_its_time(tmp_path: Path, odd: str) -> None:
    """What is not as expected is not measured; that is no reason to lose the event."""
    table = read_text(tmp_path, body_with(odd))

    assert table.start_ns.tolist() == [0, 49_500, 100_000, 200_000]
    assert table.duration_ns.tolist() == [5_000, 1_000, 5_000, 5_000]
    assert table.correlation[1] == NONE
    assert table.losses == Losses()


CUTS = {
    "in an event": lambda body: body[: body.index('"op2"')],
    "in a name": lambda body: body[: body.index("op2") + 1],
    "behind a comma": lambda body: body[: body.index('{"ph": "X", "cat": "cpu_op", "name": "op2"')],
    "before the last brackets": lambda body: body[: body.rindex("]")],
}


@pytest.mark.parametrize("root", ["object", "list"])
@pytest.mark.parametrize("cut", CUTS.values(), ids=CUTS.keys())
def test_complete_events_of_a_truncated_file_are_used(tmp_path: Path, cut: Any, root: str) -> None:
    """A job that died while it wrote leaves half a file; the report says that it is half."""
    whole = json.dumps(AROUND if root == "list" else {**BESIDE, "traceEvents": AROUND})
    body = cut(whole)

    table = read_text(tmp_path, body)

    assert labels(table) == SOUND[: 3 if body.rstrip().endswith("}") else 2]
    assert table.losses == Losses(truncated=True)


def test_a_truncated_file_of_many_chunks_keeps_all_before_the_cut(tmp_path: Path) -> None:
    """The loss is the event that was cut, wherever the cut falls."""
    body = compact(operators(20_000))
    cut = len(body) * 3 // 4

    table = read_text(tmp_path, body[:cut])

    assert len(table) == body[:cut].count('"External id":7}}')
    assert table.losses == Losses(truncated=True)
