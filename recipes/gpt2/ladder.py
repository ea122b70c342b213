"""Pictures of the walkthrough's page: the ladder, and a step before and after.

A rung has the effective tokens/s of a stage as a bar, and its gain with interval and prediction.
Below are the phases of the mean step, and one traced step operator by operator, both ways on one
scale.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from recipes.gpt2.outcomes import StageOutcome
from recipes.gpt2.progress import expected
from recipes.gpt2.table import measured, verdict
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.core.formatting.html.figures import WIDE, Axis, Mark, bar, keys, lanes
from trainperf.core.formatting.html.markup import Markup, paragraph, table, tag, text
from trainperf.core.formatting.units import duration
from trainperf.core.run_directory import ANALYSIS_SUFFIX, TRACES
from trainperf.reports.run.document import meter
from trainperf.reports.run.rows import phase_rows
from trainperf.traces.capture_files import CaptureReport, decode_report
from trainperf.traces.results import TraceLane


_TICKS = (0.5, 0.7, 1.0, 1.5, 2.0, 3.0, 5.0)


def ladder(outcomes: Sequence[StageOutcome]) -> Markup:
    """A row per stage that was run."""
    tried = [outcome for outcome in outcomes if outcome.status != "skipped"]
    rates = [outcome.measured.effective_tokens_per_s or 0.0 for outcome in tried]
    axis = _axis(tried)
    head = ("stage", "effective tokens/s", meter(0.0, "aside"), _ticks(axis), "gain", "predicted")
    rows = [
        (
            outcome.stage,
            f"{rate:,.0f}",
            meter(rate / (max(rates) or 1.0), f"{_colour(outcome)} aside"),
            _track(outcome, axis),
            measured(outcome),
            expected(outcome.prediction) if outcome.prediction else "–",
            verdict(outcome),
        )
        for outcome, rate in zip(tried, rates, strict=True)
    ]
    caption = (
        "Left bar: effective tokens/s of the stage, grey where it was rejected. Right: the wide "
        "bar is the gain predicted, the thin one the 95 % interval measured (green faster, red "
        "slower), the dashed line no change."
    )
    grid = table((*head, "\u00a0"), rows, words=(0, 2, 3, 6))
    return Markup(grid + paragraph(caption, "soft small"))


def steps(before: Path, after: Path) -> Markup:
    """Where the mean step goes, before and after, on one scale."""
    sides = [phase_rows(summarize(Run.open(run))) for run in (before, after)]
    whole = max(sum(row.seconds for row in rows) for rows in sides)
    parts = []
    for name, rows in zip(("before", "after"), sides, strict=True):
        drawn = [
            (row.seconds, row.phase, f"{row.label}: {row.time}") for row in rows if row.seconds
        ]
        total = duration(sum(row.seconds for row in rows))
        parts.append(tag("p", text(f"{name}: {total} per step")) + bar(drawn, name, whole))
    names = {row.label: f"b{row.phase}" for rows in sides for row in rows if row.seconds}
    return Markup("".join(parts) + keys(names.items()))


def timelines(before: Path, after: Path) -> Markup:
    """One traced step of both runs, on one scale; empty where one was not traced."""
    traced = [_lanes(run) for run in (before, after)]
    spans = [_step(each) for each in traced]
    if None in spans:
        return Markup("")
    longest_s = max(end - start for start, end in filter(None, spans))
    parts = []
    for name, rows, span in zip(("before", "after"), traced, spans, strict=True):
        start, end = span or (0.0, 0.0)
        parts.append(tag("p", text(f"{name}: a step of {duration(end - start)}")))
        parts.append(lanes(_drawn(rows, start, end, WIDE / longest_s)))
    caption = (
        "Operators of each thread in one traced step; a trace makes a step slower.  The traces "
        "themselves are in the runs' folders and in TensorBoard."
    )
    return Markup("".join(parts) + paragraph(caption, "soft small"))


def _axis(outcomes: Sequence[StageOutcome]) -> Axis:
    ends = [0.9, 1.2]
    for outcome in outcomes:
        if outcome.speedup is not None:
            ends += [outcome.speedup.low, outcome.speedup.high]
        if outcome.prediction is not None:
            ends += [end for end in (outcome.prediction.low, outcome.prediction.high) if end]
    low, high = max(min(ends), _TICKS[0]), min(max(ends), _TICKS[-1])
    return Axis(low=low / 1.03, high=high * 1.03, logarithmic=True)


def _ticks(axis: Axis) -> Markup:
    spans = (
        f'<span class="tick" style="left:{axis.at(tick) * 100:.1f}%">{tick:g}</span>'
        for tick in _TICKS
        if axis.low <= tick <= axis.high
    )
    return Markup(f'<div class="forest">{"".join(spans)}</div>')


def _track(outcome: StageOutcome, axis: Axis) -> Markup:
    marks = [f'<span class="unity" style="left:{axis.at(1.0) * 100:.1f}%"></span>']
    predicted, gain = outcome.prediction, outcome.speedup
    if predicted is not None and predicted.high is not None:
        low = axis.at(predicted.low or 0.0)
        marks.append(_reach(low, axis.at(predicted.high), "even predicted"))
    if gain is not None:
        kind = {"faster": "good", "slower": "bad"}.get(outcome.verdict or "", "even")
        at = axis.at(gain.value) * 100
        marks.append(_reach(axis.at(gain.low), axis.at(gain.high), kind))
        marks.append(f'<span class="spot {kind}" style="left:{at:.1f}%"></span>')
    return Markup(f'<div class="forest">{"".join(marks)}</div>')


def _reach(low: float, high: float, kind: str) -> str:
    # The wide one is what was predicted.
    wide = ";top:.05rem;height:1rem;opacity:.22" if "predicted" in kind else ""
    place = f"left:{low * 100:.1f}%;width:{(high - low) * 100:.1f}%{wide}"
    return f'<span class="reach {kind.split(maxsplit=1)[0]}" style="{place}"></span>'


def _colour(outcome: StageOutcome) -> str:
    return "b7" if outcome.status == "rejected" else "b2"


def _lanes(run: Path) -> tuple[TraceLane, ...]:
    """Of the run's last trace; none where there is none."""
    analyses = sorted((run / TRACES).glob(f"*{ANALYSIS_SUFFIX}"))
    if not analyses:
        return ()
    ranks = decode_report(analyses[-1].read_bytes(), CaptureReport).ranks
    return ranks[0].lanes if ranks else ()


def _step(rows: Sequence[TraceLane]) -> tuple[float, float] | None:
    """Start and end of the traced step of middle length."""
    marks = [each for row in rows if row.name == "steps" for each in row.slices]
    ordered = sorted(marks, key=lambda each: each.end_s - each.start_s)
    middle = ordered[len(ordered) // 2] if ordered else None
    return None if middle is None else (middle.start_s, middle.end_s)


def _drawn(
    rows: Sequence[TraceLane], start_s: float, end_s: float, per_s: float
) -> Iterator[tuple[str, list[Mark]]]:
    for row in rows:
        inside = [each for each in row.slices if each.end_s > start_s and each.start_s < end_s]
        marks = [
            (
                (max(each.start_s, start_s) - start_s) * per_s,
                (min(each.end_s, end_s) - max(each.start_s, start_s)) * per_s,
                "event",
                f"{each.name}: {duration(each.end_s - each.start_s)}",
            )
            for each in inside
        ]
        if marks:
            yield row.name, marks
