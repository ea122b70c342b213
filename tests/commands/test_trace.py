"""`trainperf trace`: the answer on stdout, one line on stderr for what cannot be used."""

import json
from pathlib import Path

import pytest
from support.commands import Command
from support.planted import planted_steps
from support.traces import MS, TRACES, Launches, event, needs_traces, step_mark, write_trace

from trainperf.traces.event_table import Kind


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A trace of six planted steps."""
    return write_trace(tmp_path / "planted.json.gz", planted_steps(6), rank=0, world_size=2)


def test_the_text_is_the_answer_and_what_is_next(command: Command, planted: Path) -> None:
    """Title, answer, where the step goes, notes, next."""
    result = command("trace", planted)
    lines = result.out.splitlines()

    assert result.code == 0
    assert lines[0] == "trainperf trace · planted.json.gz · rank 0 · Planted GPU · 6 steps (1–6)"
    # Of 559 ms: 300 busy, 101 without a launch, 100 in the loader.
    assert " ".join(" ".join(lines[2:4]).split()).startswith(
        "The GPU is idle 46 % of its recorded span, 18 % because the host launches too late and "
        "18 % because it waits for the DataLoader."
    )
    assert any(line.startswith("  GPU busy") and "53.7 %" in line for line in lines)
    assert any(line.startswith("  note  1 of 2 ranks read, without 1") for line in lines)
    assert any(line.startswith("     do       ") for line in lines)
    assert max(map(len, lines)) <= 100


def test_json_is_the_data(command: Command, planted: Path) -> None:
    """The fields that the issue names, in SI units; lanes only when asked for."""
    found = json.loads(command("trace", planted, "--format", "json").out)
    (rank,) = found["ranks"]

    assert set(found) >= {"ranks", "stragglers", "warnings", "findings", "answer"}
    assert rank["rank"] == 0
    assert rank["world_size"] == 2
    assert rank["steps"][0]["allreduce_tail_s"] == pytest.approx(0.008)
    assert rank["steps"][0]["data_wait_exposed_s"] == pytest.approx(0.020)
    assert rank["lanes"] == []
    with_lanes = json.loads(command("trace", planted, "--format", "json", "--lanes").out)
    assert with_lanes["ranks"][0]["lanes"][0]["name"] == "steps"


@pytest.mark.parametrize(
    ("form", "words"),
    [
        ("text", ["A step takes 100 ms before and 20.0 ms after.", "gemm_bwd", "for a verdict"]),
        ("markdown", ["kernels, per step"]),
        ("html", ["<!doctype html>", "operators, per step", "gemm_bwd"]),
        ("json", ['"kind": "kernel"', '"below": null']),
    ],
)
def test_two_captures_are_compared(
    command: Command, planted: Path, form: str, words: list[str]
) -> None:
    """Times, operators and kernels of a step, before and after."""
    events = [step_mark(1, 0, 20 * MS), event("aten::mm", MS, 5 * MS)]
    events += Launches()("gemm_bwd", 2 * MS, 3 * MS, MS)
    after = write_trace(planted.parent / "after.json", events)

    result = command("trace", after, "--before", planted, "--format", form)

    assert result.code == 0
    assert [word for word in words if word not in result.out] == []


def test_a_capture_without_a_step_is_compared_with_none(command: Command, planted: Path) -> None:
    """One line says so; a capture is the same as itself."""
    empty = write_trace(planted.parent / "no.json", [event("[memory]", 0, 0, kind=Kind.MEMORY)])

    refused = command("trace", empty, "--before", planted)

    assert (refused.code, refused.out) == (2, "")
    assert "no step to compare in one of the traces" in refused.err
    assert "No difference of 1 %" in command("trace", planted, "--before", planted).out


def test_names_of_a_trace_are_not_obeyed(command: Command, tmp_path: Path) -> None:
    """Neither by a terminal nor by markdown."""
    evil = "\x1b[31mred<script>alert(1)</script>|`x`"
    events = [step_mark(1, 0, 20 * MS), event(evil, MS, 5 * MS)]
    events += Launches()(evil, 2 * MS, 3 * MS, MS)
    path = write_trace(tmp_path / "evil.json", events)

    text, said = command("trace", path).out, command("trace", path, "--format", "markdown").out

    assert "\x1b" not in text + said
    assert "red<script>" in text
    assert "<script>" not in said


@needs_traces
def test_the_answer_for_a_loader_that_is_too_slow(command: Command) -> None:
    """A real job without workers."""
    said = " ".join(
        command("trace", TRACES / "resnet50_v100_workers0.pt.trace.json.gz").out.split()
    )

    assert "The GPU is idle 39 % of its recorded span, 29 % because it waits for the Data" in said
    assert "waits 69.3 ms for data, 59.3 ms of it with the GPU idle" in said
    assert "gain about 1.31×, at most 1.51×; takes minutes" in said
