"""What is said about a run beside its charts?  The report's own sentences, as data.

Every name that came from a file is put on one line without control characters; the page shows it
as text, never as markup.
"""

from collections.abc import Sequence

import msgspec

from trainperf.analysis.rules.distributed.straggler import said as lateness
from trainperf.analysis.summary.schema import State, Summary
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.units import (
    Scale,
    duration,
    fine_share,
    plural,
)
from trainperf.meters.fold import Reading
from trainperf.reports.layout.finding_view import FindingRow, FindingView, finding_view, first_rows
from trainperf.reports.run.headline import headline
from trainperf.reports.run.rows import (
    amount,
    device,
    facts,
    ledger,
    not_there,
    phase_rows,
    progress,
    remarks,
)


class PhaseWords(msgspec.Struct, frozen=True, kw_only=True):
    """One phase of the mean steady step."""

    key: str
    label: str
    said: str
    """Its time."""
    share: str
    fraction: float
    note: str
    absent: str
    """Why it has no time of its own; empty where it has."""


class Named(msgspec.Struct, frozen=True, kw_only=True):
    """A number with its name, in words."""

    name: str
    said: str
    fraction: float | None = None
    """Its share of the whole it stands in, for drawing."""


class ReadingWords(msgspec.Struct, frozen=True, kw_only=True):
    """One reading as a row of a table."""

    name: str
    said: str
    """Empty where there is no value."""
    interval: str
    steps: int
    reason: str
    """Why there is no value."""


class RankWords(msgspec.Struct, frozen=True, kw_only=True):
    """One rank as a row of a table whose head is `Words.rank_columns`."""

    rank: int
    cells: list[str]


class Words(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is said about a run."""

    name: str
    path: str
    state: State
    started_at: str
    about: str
    """Ranks and device."""
    progress: str
    answer: str
    first: list[FindingRow]
    """What to do first, and where."""
    ranks: list[int]
    phases_of: str
    """What the phases are the mean of."""
    phases: list[PhaseWords]
    facts: list[Named]
    fit_said: str
    """How long the fit took."""
    fit: list[Named]
    findings: list[FindingView]
    late: list[str]
    """Who is late, where each synchronisation point has somebody to name."""
    rank_columns: list[str]
    rank_rows: list[RankWords]
    readings: list[ReadingWords]
    warnings: list[str]
    remarks: list[str]


def words_of(summary: Summary) -> Words:
    """What the page says about a run."""
    run = summary.run
    head, rows = _ranks(summary)
    return Words(
        name=plain(run.name),
        path=plain(run.path),
        state=run.state,
        started_at=plain(run.started_at),
        about=f"{plural(len(run.ranks), 'rank')} · {plain(device(summary))}",
        progress=plain(progress(summary)),
        answer=plain(headline(summary)),
        first=first_rows(summary.findings),
        ranks=list(run.ranks),
        phases_of=_phases_of(summary),
        phases=_phases(summary),
        facts=[Named(name=fact.name, said=plain(fact.said)) for fact in facts(summary)],
        fit_said=duration(run.fit_s),
        fit=_fit(summary),
        findings=[finding_view(finding) for finding in summary.findings],
        late=[plain(lateness(p)) for p in summary.synchronisation if p.straggler is not None],
        rank_columns=head,
        rank_rows=rows,
        readings=[_reading(name, reading) for name, reading in summary.readings.items()],
        warnings=[plain(warning) for warning in summary.warnings],
        remarks=[plain(remark) for remark in remarks(summary)],
    )


def _phases_of(summary: Summary) -> str:
    run = summary.run
    steps = plural(run.steady_steps, "steady step") if run.steady_steps else "all steps"
    return f"mean of {steps}{' and of all ranks' if len(run.ranks) > 1 else ''}"


def _phases(summary: Summary) -> list[PhaseWords]:
    rows = phase_rows(summary)
    scale = Scale.fine(sum(row.seconds for row in rows))
    return [
        PhaseWords(
            key=row.phase.label,
            label=row.label,
            said=scale.say(row.seconds),
            share=fine_share(row.fraction),
            fraction=row.fraction,
            note=plain(row.note),
            absent=not_there(summary, row),
        )
        for row in rows
    ]


def _fit(summary: Summary) -> list[Named]:
    whole_s = summary.run.fit_s
    return [
        Named(name=plain(name), said=duration(spent_s), fraction=spent_s / whole_s)
        for name, spent_s in ledger(summary)
        if spent_s and whole_s
    ]


def _ranks(summary: Summary) -> tuple[list[str], list[RankWords]]:
    """What each rank spends in a steady step; empty for a single rank."""
    if len(summary.run.ranks) < 2:
        return [], []
    readings = {
        "step": "step_mean_s",
        "data wait": "phase_data_wait_s",
        "forward": "phase_forward_s",
        "backward": "phase_backward_s",
        "callbacks": "phase_callbacks_s",
        "loop": "phase_loop_s",
        "all-reduce tail": "allreduce_tail_s",
    }
    columns = {head: summary.readings[name].per_rank for head, name in readings.items()}
    for point in summary.synchronisation:
        skews = tuple(wait - point.transfer_s for wait in point.wait_s)
        columns[f"skew at {point.point}"] = skews
    known = {head: values for head, values in columns.items() if any(_is(values))}
    rows = [
        RankWords(rank=rank, cells=[_cell(values, place) for values in known.values()])
        for place, rank in enumerate(summary.run.ranks)
    ]
    return list(known), rows


def _is(values: Sequence[float | None]) -> list[bool]:
    return [value is not None for value in values]


def _cell(values: Sequence[float | None], place: int) -> str:
    value = values[place] if place < len(values) else None
    return "not measured" if value is None else duration(value)


def _reading(name: str, reading: Reading) -> ReadingWords:
    return ReadingWords(
        name=name,
        said="" if reading.value is None else amount(reading.value, reading.unit, name),
        interval=_interval(name, reading),
        steps=reading.n,
        reason=plain(reading.reason or ""),
    )


def _interval(name: str, reading: Reading) -> str:
    if reading.low is None or reading.high is None:
        return ""
    low, high = (amount(end, reading.unit, name) for end in (reading.low, reading.high))
    return f"{low} – {high}"
