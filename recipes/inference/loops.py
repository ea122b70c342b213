"""Loops of requests under trainperf: what is wrong with each, what that costs, and traces.

Each fault is planted in a loop of its own, which trainperf measures; what mending it is worth is
then timed in turns.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import msgspec
import torch
from torch import Tensor, nn

from recipes.cases.case import Case, MeasuredRow
from recipes.cases.measuring import paired
from recipes.cases.reports import finding_lines, report_lines
from recipes.cases.verdicts import verdict
from recipes.inference.model import Size, batch_of, batches_of, device, model_of
from recipes.inference.published import (
    DROPOUT_LEFT_ON,
    EVAL_FORGOTTEN,
    GRADIENTS_LEFT_ON,
)
from recipes.inference.waits import asks_each, asks_once
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import examine, summarize
from trainperf.audit.inference_state import graph_size
from trainperf.core.formatting.table import UNKNOWN, Table, or_unknown
from trainperf.core.formatting.units import count, duration, plural
from trainperf.loop import LoopMonitor
from trainperf.recording.profiling.options import ScheduledProfile


WINDOWS, ACTIVE = 3, 3
"""Traces of the long loop, and batches in each."""

REPEATED = 64
"""Requests that are asked twice, to see how many get another answer."""

Answers = Callable[[nn.Module, Tensor], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Loop:
    """A loop of requests as somebody has written it."""

    name: str
    model: nn.Module
    inference: bool = True
    """Whether it is under inference_mode."""
    answers: Answers = asks_once

    def around(self) -> AbstractContextManager[object]:
        """What the calls are inside of."""
        return torch.inference_mode() if self.inference else nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoopResults:
    """All that is shown of the loops."""

    cases: tuple[Case, ...]
    tables: tuple[Table, ...]


def loops(size: Size, out: Path) -> LoopResults:
    """The faults one by one, all of them at once, and the mended loop with its traces."""
    mended = Loop(name="mended", model=model_of(size))
    everything = Loop(
        name="as-found",
        model=model_of(size, always=True).train(),
        inference=False,
        answers=asks_each,
    )
    cases = (
        _eval_forgotten(size, out),
        _left_on(size, out),
        _gradients(size, out),
        _mended(size, out, everything, mended),
    )
    faulty_run, whole = out / everything.name, measured(size, out, mended, long=True)
    tables = (_readings(size, faulty_run, whole), _traces(size, whole))
    return LoopResults(cases=cases, tables=tables)


def measured(size: Size, out: Path, loop: Loop, *, long: bool = False) -> Path:
    """Run a loop under trainperf and return its run directory, which is named after the loop.

    The long one is profiled on a schedule: a few windows of it, and nothing in between.
    """
    steps = size.long if long else size.steps
    monitor = LoopMonitor(
        out / loop.name,
        kind="inference",
        report=False,
        machine=False,
        audit_at=size.steps // 2,
        profile=_schedule(steps) if long else None,
    ).watch(loop.model)
    with monitor, loop.around():
        for batch in monitor.batches(batches_of(size, steps)):
            with monitor.phase("h2d"):
                moved = batch.to(device())
            with monitor.phase("forward"):
                answers = loop.answers(loop.model, moved)
            _sent(answers)
            monitor.end_step()
    if monitor.run is None:
        raise RuntimeError(f"{out / loop.name}: no run was written")
    return monitor.run


def _schedule(steps: int) -> ScheduledProfile:
    """Windows of a loop of so many batches, evenly over it."""
    cycle = steps // (WINDOWS + 1)
    return ScheduledProfile(
        skip_first=cycle // 2, wait=cycle - 1 - ACTIVE, warmup=1, active=ACTIVE, repeat=WINDOWS
    )


def _sent(answers: object) -> list[int]:
    """On the host, as whoever asked gets them."""
    return answers.tolist() if isinstance(answers, Tensor) else list(answers)  # type: ignore[call-overload]


def _eval_forgotten(size: Size, out: Path) -> Case:
    wrong = Loop(name="eval-forgotten", model=model_of(size).train())
    run = measured(size, out, wrong)
    rows = _against(size, wrong.model, model_of(size), ("train mode", "eval mode"))
    return Case(
        name="eval_forgotten",
        title="eval() forgotten",
        published=EVAL_FORGOTTEN,
        claim="A model left in train mode is slower, and answers the same request differently.",
        before=finding_lines(run, ("train_mode",)),
        change=("model.eval()",),
        measured=rows,
        files=(wrong.name,),
        **verdict(rows[-1], "faster", f"dropout is cheap here, but {rows[0].note}"),
    )


def _left_on(size: Size, out: Path) -> Case:
    wrong = Loop(name="dropout-left-on", model=model_of(size, always=True))
    run = measured(size, out, wrong)
    rows = _against(
        size, wrong.model, model_of(size), ("dropout in any mode", "dropout by the mode")
    )
    return Case(
        name="dropout_left_on",
        title="Dropout left on",
        published=DROPOUT_LEFT_ON,
        claim="Dropout that does not ask for the mode is slower, and survives eval().",
        before=finding_lines(run, ("dropout_left_on",)),
        change=("functional.dropout(x, p, training=self.training)",),
        measured=rows,
        files=(wrong.name,),
        **verdict(rows[-1], "faster", f"dropout is cheap here, but {rows[0].note}"),
    )


def _against(
    size: Size, wrong: nn.Module, right: nn.Module, names: tuple[str, str]
) -> tuple[MeasuredRow, ...]:
    """Times of both, and how many requests each answers otherwise when asked again."""
    batch = batch_of(size).to(device())
    with torch.inference_mode():
        # Their answers are meant to differ: what is compared is the time alone.
        rows = paired(
            dict(zip(names, (wrong, right), strict=True)),
            batch,
            seconds=size.seconds,
            tolerance=float("inf"),
        )
        notes = [_otherwise(size, model) for model in (wrong, right)]
    return tuple(
        msgspec.structs.replace(row, note=note) for row, note in zip(rows, notes, strict=True)
    )


def _otherwise(size: Size, model: nn.Module) -> str:
    requests = batch_of(size, REPEATED).to(device())
    first, again = model(requests), model(requests)
    number = int((first != again).any(dim=-1).sum())
    return f"{number} of {REPEATED} requests got another answer the second time"


def _gradients(size: Size, out: Path) -> Case:
    wrong = Loop(name="gradients-left-on", model=model_of(size), inference=False)
    run = measured(size, out, wrong)
    model, batch = model_of(size), batch_of(size).to(device())

    def without(given: Tensor) -> Tensor:
        with torch.inference_mode():
            scores: Tensor = model(given)
            return scores

    rows = paired({"gradients on": model, "inference_mode": without}, batch, seconds=size.seconds)
    graph = graph_size(model(batch))
    kept = MeasuredRow(
        what="kept for gradients until the answer is dropped",
        value=None if graph is None else float(graph.kept_bytes),
        unit="B",
        note="" if graph is None else f"{count(graph.nodes)} nodes; under inference_mode nothing",
    )
    why = "the operators take nearly all of the time; the memory is what it costs"
    return Case(
        name="gradients_left_on",
        title="Gradients left on",
        published=GRADIENTS_LEFT_ON,
        claim="Gradients left on make answers slower, and keep memory for each.",
        before=finding_lines(run, ("gradients_on",)),
        change=("with torch.inference_mode():",),
        measured=(*rows, kept),
        files=(wrong.name,),
        **verdict(rows[-1], "faster", why),
    )


def _mended(size: Size, out: Path, faulty: Loop, mended: Loop) -> Case:
    run = measured(size, out, faulty)

    def step(loop: Loop) -> Callable[[Tensor], object]:
        def answer(batch: Tensor) -> float:
            with loop.around():
                return float(len(_sent(loop.answers(loop.model, batch))))

        return answer

    batch = batch_of(size).to(device())
    rows = paired(
        {"with its faults": step(faulty), "mended": step(mended)}, batch, seconds=size.seconds
    )
    return Case(
        name="all_mended",
        title="All of them mended",
        claim="A loop without these faults answers more requests per second.",
        before=report_lines(run),
        change=(
            "model.eval()",
            "functional.dropout(x, p, training=self.training)",
            "with torch.inference_mode():",
            "answers = torch.where(likeliest > SURE, classes, -1)",
        ),
        measured=rows,
        files=(faulty.name, mended.name),
        **verdict(rows[-1], "faster", "forward takes nearly all of the time before and after"),
    )


_SHOWN = {
    "latency_s": "latency p50",
    "latency_p95_s": "latency p95",
    "latency_p99_s": "latency p99",
    "samples_per_s": "requests/s",
    "first_step_s": "first step",
}


def _readings(size: Size, faulty: Path, mended: Path) -> Table:
    before, after = (summarize(Run.open(_latest(run))) for run in (faulty, mended))
    rows = []
    for name, title in _SHOWN.items():
        values = (before.value(name), after.value(name))
        say = count if name == "samples_per_s" else duration
        rows.append((title, *(UNKNOWN if value is None else say(value) for value in values)))
    wrong = [finding.id for finding in before.findings]
    left = [finding.id for finding in after.findings]
    return Table(
        title="The loop as it was found, and mended",
        head=("", "as found", "mended"),
        rows=tuple(rows),
        notes=(
            f"Findings as found: {', '.join(wrong) or 'none'}; mended: {', '.join(left) or 'none'}",
            f"{count(size.steps)} and {count(size.long)} batches; the claim is decided in turns.",
        ),
    )


def _latest(run: Path) -> Path:
    """The run directory itself, or the newest below it."""
    files = sorted(run.rglob("steps-rank0.jsonl"), key=lambda file: file.stat().st_mtime)
    return files[-1].parent


def _traces(size: Size, run: Path) -> Table:
    """What trainperf reads in the traces of the long loop."""
    captures = examine(Run.open(run)).captures
    ranks = [(rank, capture.answer) for capture in captures for rank in capture.ranks]
    return Table(
        title="A scheduled profile of the long loop",
        head=("trace", "steps", "step"),
        rows=tuple(
            (rank.file, str(rank.totals.steps), or_unknown(rank.totals.step_s, duration))
            for rank, _ in ranks
        ),
        notes=(
            *(f"{rank.file}: {answer}" for rank, answer in ranks),
            f"{count(size.long)} batches of {plural(size.batch, 'request')}, {ACTIVE} in a trace.",
            "Recorded with `LoopMonitor(profile=ScheduledProfile(…))`, read by `trainperf trace`.",
        ),
    )
