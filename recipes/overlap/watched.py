"""Loops with the monitor attached: always-on figures, findings, and a timeline from their trace."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from recipes.cases.case import Timeline, TimelineLane
from recipes.cases.reports import finding_ids
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.core import readings
from trainperf.core.formatting.table import Table, or_unknown
from trainperf.core.formatting.units import duration, fine_share
from trainperf.core.run_directory import TRACES
from trainperf.loop import LoopMonitor
from trainperf.recording.profiling.options import ScheduledProfile
from trainperf.traces.job_report import report
from trainperf.traces.results import Slice, TraceLane


B = TypeVar("B")

ACTIVE = 3
"""Steps that are traced; the middle one is drawn."""

AUDITED, SKIPPED = 4, 6
"""The step that is audited, and the steps before those that are traced."""

HOST_TOO_SLOW = ("launch_bound",)
"""Findings that say that the device waits for the host."""

_NEAR = 0.002
"""Share of the picture below which a pause between two spans of a kind is not drawn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchedLoop:
    """A loop that has run with the monitor attached."""

    name: str
    run: Path


def watched(
    folder: Path,
    name: str,
    batches: Iterable[B],
    step: Callable[[LoopMonitor, B], Tensor],
    model: nn.Module,
    device: torch.device | str | None = None,
) -> WatchedLoop:
    """Run a loop with everything on: the monitor, an audit of one step, a trace of three.

    Args:
        folder: Where its run directory is made.
        name: Of the loop, for the tables.
        batches: What is iterated over.
        step: Called with the monitor, for its phases, and each batch; returns the loss.
        model: What is called.
        device: Where it is; by default where its parameters are.
    """
    profile = ScheduledProfile(
        skip_first=SKIPPED, wait=0, warmup=1, active=ACTIVE, on_demand=False, analyse=False
    )
    with LoopMonitor(
        folder / _folder(name), report=False, machine=False, profile=profile, audit_at=AUDITED
    ) as monitor:
        monitor.watch(model, device=device)
        for batch in monitor.batches(batches):
            monitor.end_step(step(monitor, batch))
    if monitor.run is None:
        raise RuntimeError("the fit left no run directory; see the warning above")
    return WatchedLoop(name=name, run=monitor.run)


def _folder(name: str) -> str:
    return "-".join("".join(sign if sign.isalnum() else " " for sign in name).split())


class Calls(nn.Module, Generic[B]):
    """A function as a model: the mean of what it returns."""

    def __init__(self, function: Callable[[B], Tensor]) -> None:
        super().__init__()
        self._function = function

    def forward(self, batch: B) -> Tensor:
        """A scalar, as a loss is."""
        return self._function(batch).mean()


def watched_calls(
    folder: Path,
    versions: Mapping[str, Callable[[B], Tensor]],
    batch: B,
    steps: int,
    device: str,
) -> tuple[WatchedLoop, ...]:
    """A loop for each version, whose steps only call it, without gradients.

    Args:
        folder: Where the run directories are made.
        versions: By the name of the loop.
        batch: Of every step.
        steps: Of each loop.
        device: Where the batch is.
    """

    def loop(name: str, model: Calls[B]) -> WatchedLoop:
        def step(monitor: LoopMonitor, batch: B) -> Tensor:
            with torch.no_grad(), monitor.phase("forward"):
                scalar: Tensor = model(batch)
            return scalar

        return watched(folder, name, [batch] * steps, step, model, device)

    return tuple(loop(name, Calls(version)) for name, version in versions.items())


def figures(loops: Sequence[WatchedLoop], also: Sequence[str] = ()) -> Table:
    """What the monitor itself says of them, always on and without a trace.

    Args:
        loops: A row each.
        also: Sentences beneath.
    """
    return Table(
        title="Always-on figures of the watched loops",
        head=("loop", "step", "p95", "data wait", "H2D", "host-bound", "findings"),
        rows=tuple(map(_row, loops)),
        end_words=1,
        notes=(
            "Steady steps without the audited and the traced ones; a dash is not measured.",
            *also,
        ),
    )


def _row(loop: WatchedLoop) -> tuple[str, ...]:
    summary = summarize(Run.open(loop.run))

    def value(name: str) -> float | None:
        reading = summary.reading(name)
        return None if reading is None else reading.value

    return (
        loop.name,
        or_unknown(value(readings.STEP_S), duration),
        or_unknown(value(readings.STEP_P95_S), duration),
        or_unknown(value(readings.DATA_WAIT_FRACTION), fine_share),
        or_unknown(value(readings.H2D_S), duration),
        or_unknown(value(readings.HOST_BOUND_FRACTION), fine_share),
        ", ".join(finding_ids(loop.run)) or "none",
    )


def timeline(loop: WatchedLoop) -> Timeline | None:
    """The middle one of the traced steps, read by trainperf's own trace reader."""
    traces = sorted((loop.run / TRACES).glob("*.json.gz"))
    ranks = report(traces[-1:]).ranks if traces else ()
    rows = ranks[0].lanes if ranks else ()
    marks = [each for row in rows if row.name == "steps" for each in row.slices]
    if not marks:
        return None
    step = marks[len(marks) // 2]
    return Timeline(
        title=f"{loop.name}: a traced step of {duration(step.end_s - step.start_s)}",
        lanes=tuple(lane for row in rows if (lane := span_lane(row, step)).spans),
    )


def span_lane(row: TraceLane, step: Slice) -> TimelineLane:
    """What of a row is in the step; neighbours of a kind become one span."""
    near_s = _NEAR * (step.end_s - step.start_s)
    spans: list[tuple[float, float, str]] = []
    for each in row.slices:
        start_s, end_s = max(each.start_s, step.start_s), min(each.end_s, step.end_s)
        if start_s >= end_s:
            continue
        start_s, end_s = start_s - step.start_s, end_s - step.start_s
        if spans and spans[-1][2] == each.kind and start_s - sum(spans[-1][:2]) <= near_s:
            begun_s = spans.pop()[0]
            spans.append((begun_s, end_s - begun_s, each.kind))
        else:
            spans.append((start_s, end_s - start_s, each.kind))
    return TimelineLane(name=row.name, spans=tuple(spans))
