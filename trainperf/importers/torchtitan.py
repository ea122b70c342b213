"""Importer of torchtitan's structured log: one JSON line per event, one file per rank.

Spans have a line where they begin and one where they end, with their milliseconds by a monotonic
clock; every line has the time of day in microseconds.  They were read in torchtitan's sources of
August and September 2026 (`torchtitan/observability`, `torchtitan/trainer.py`).
"""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from trainperf.core.phases import Gap, Phase, Tag
from trainperf.importers.base import (
    MS,
    LogEvent,
    LogFormat,
    LoggedFit,
    LoggedGap,
    LoggedStart,
    LoggedSteps,
    lines_of,
)


_PHASES = {
    "fetching_batch": Phase.DATA_WAIT,
    "optim": Phase.OPTIMIZER,
    "collect_dist_metrics": Phase.LOOP,
}
_GAPS = {"eval": Gap.VALIDATION, "checkpoint_save": Gap.CHECKPOINT}
"""Spans inside of a step that are no part of it; they come at its end."""
_LONG_PAUSE = 0.05
"""Share of a step from which a collection of garbage makes it unlike others."""


class _Line(msgspec.Struct, gc=False):
    """What is read of a line."""

    log_type_name: str
    time_us: int
    rank: int = 0
    value: float = 0.0
    event_name: str | None = None
    message: str = ""


_DECODER = msgspec.json.Decoder(_Line)


def read(file: Path, fit: LoggedFit) -> Iterator[LogEvent]:
    """The steps and gaps of a rank, in order."""
    fit.notes["tokens"] = "labels != -100"
    began_us, at_us, steps, inside = 0, 0, 0, ""
    spans: defaultdict[str, list[float]] = defaultdict(list)
    for line in filter(None, map(_line_of, lines_of(file))):
        name, _, edge = line.log_type_name.rpartition("_")
        at_us = line.time_us
        if not began_us or edge == "started":
            began_us, steps = at_us, 0
            yield LoggedStart(day_ns=1000 * began_us, rank=line.rank)
        if name == "step":
            since_ns = 1000 * (at_us - began_us)
            if edge == "start" and not steps:
                yield LoggedGap(gap=Gap.STARTUP, duration_ns=since_ns)
            elif edge == "end" and "optim" in spans:
                # The data ended in one without an update.
                yield from _step(spans, round(line.value * MS), since_ns)
                steps += 1
            # `[step 7] step_error: ValueError: …`
            fit.ended = line.message.partition("step_error: ")[2].partition(":")[0] or fit.ended
            spans.clear()
            inside = ""
        elif edge == "start":
            # What is in a gap is not the step's.
            inside = inside or (name if name in _GAPS else "")
        elif not inside or name == inside:
            inside = ""
            spans[line.event_name or name].append(line.value)
    fit.end_ns = 1000 * (at_us - began_us)


def _step(spans: Mapping[str, Sequence[float]], whole_ns: int, end_ns: int) -> Iterator[LogEvent]:
    """A step whose spans took so many milliseconds, and the gaps in it."""
    spent_ns = {name: sum(ms * MS for ms in all_ms) for name, all_ms in spans.items()}
    gaps = [
        LoggedGap(gap=_GAPS[name], duration_ns=round(ns))
        for name, ns in spent_ns.items()
        if name in _GAPS
    ]
    wall_ns = max(0, whole_ns - sum(gap.duration_ns for gap in gaps))
    gc_ns = spent_ns.get("gc_collect", 0.0)
    yield LoggedSteps(
        wall_ns=wall_ns,
        phases_ns={phase: spent_ns[name] for name, phase in _PHASES.items() if name in spans},
        end_ns=end_ns - whole_ns + wall_ns,
        tags=int(Tag.GC) if gc_ns > _LONG_PAUSE * wall_ns else 0,
        micro_batches=max(1, len(spans.get("fwd_bwd", ()))),
        facts={
            "tokens_effective": spans.get("local_valid_tokens", [None])[-1],
            "gc_ns": round(gc_ns),
        },
    )
    yield from gaps


def _line_of(text: bytes) -> _Line | None:
    """What a line says; where one that was cut runs into another one, the last part."""
    try:
        return _DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError):
        begin = text.rfind(b'{"')
        return _line_of(text[begin:]) if begin > 0 else None


FORMAT = LogFormat(
    name="torchtitan",
    title="a torchtitan structured log",
    marks='JSON lines with "log_type_name" and "time_us" (structured_logs/*.jsonl)',
    mark=re.compile(rb'"time_us": ?\d+[^\n]*"log_type_name": ?"'),
    read=read,
    clock="a step is its `step` span on the host's clock, without evaluation and checkpoints",
    holds={
        Phase.DATA_WAIT.label: "span `fetching_batch`",
        Phase.OPTIMIZER.label: "span `optim`, with gradient clipping",
        Phase.LOOP.label: "span `collect_dist_metrics`",
        Gap.STARTUP.label: "from the first event to the first `step_start`",
        Gap.VALIDATION.label: "span `eval`",
        Gap.CHECKPOINT.label: "span `checkpoint_save`",
        "tokens_effective": "value `local_valid_tokens`",
        "gc_ns": "span `gc_collect`",
    },
    lacks={
        Phase.FORWARD.label: "forward and backward are one span, `fwd_bwd`",
        Phase.BACKWARD.label: "forward and backward are one span, `fwd_bwd`",
        Phase.H2D.label: "no span is around the copies",
        Phase.CALLBACKS.label: "torchtitan has no callbacks",
        "loss": "the loss is in the console log and in TensorBoard, not in the structured log",
        "tokens_padded": "padding is not counted",
    },
)
