"""Everything a report says about a run, as text: the renderers only lay it out, the tab sends it.

Every name that came from a file is put on one line without control characters; escaping for
markdown and HTML is left to the renderer.
"""

from collections.abc import Iterator

import msgspec

from trainperf.analysis.rules.distributed.straggler import lateness
from trainperf.analysis.summary.schema import State, Summary
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.units import duration
from trainperf.core.readings import (
    ALLREDUCE_TAIL_S,
    PHASE_BACKWARD_S,
    PHASE_CALLBACKS_S,
    PHASE_DATA_WAIT_S,
    PHASE_FORWARD_S,
    PHASE_LOOP_S,
    STEP_MEAN_S,
)
from trainperf.meters.fold import Reading
from trainperf.reports.layout.finding_view import (
    FindingRow,
    FindingView,
    finding_view,
    first_rows,
    to_act_on,
)
from trainperf.reports.run.headline import headline
from trainperf.reports.run.rows import (
    NamedValue,
    PhaseRow,
    about,
    amount,
    facts,
    ledger,
    phase_rows,
    phases_of,
    progress,
    remarks,
)
from trainperf.reports.run.tables import light_line, split_line


class ReadingRow(msgspec.Struct, frozen=True, kw_only=True):
    """One reading as a row of a table."""

    name: str
    value: str
    """Empty where there is no value."""
    interval: str
    steps: int
    reason: str
    """Why there is no value."""


class RankRow(msgspec.Struct, frozen=True, kw_only=True):
    """One rank as a row of a table whose head is `RunView.rank_columns`."""

    rank: int
    cells: list[str]


class RunView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that is said about a run."""

    name: str
    path: str
    state: State
    started_at: str
    about: str
    """Ranks and device."""
    progress: str
    headline: str
    first: list[FindingRow]
    """What to do first, and where."""
    ranks: list[int]
    phases_of: str
    """What the phases are the mean of."""
    phases: list[PhaseRow]
    why: list[str]
    """What the step is spent on, and how far that is from what the chip allows."""
    facts: list[NamedValue]
    fit_time: str
    """How long the fit took."""
    fit: list[NamedValue]
    findings: list[FindingView]
    others: list[FindingView]
    """Findings but the first to act on, those that ask for a change before the others."""
    late: list[str]
    """Who is late, where a synchronisation point has a rank to name."""
    rank_columns: list[str]
    rank_rows: list[RankRow]
    readings: list[ReadingRow]
    warnings: list[str]
    remarks: list[str]


def run_view(summary: Summary) -> RunView:
    """Put a run into words."""
    run = summary.run
    columns = _rank_columns(summary)
    acted = to_act_on(summary.findings)
    others = acted[1:] + [finding for finding in summary.findings if finding not in acted]
    return RunView(
        name=plain(run.name),
        path=plain(run.path),
        state=run.state,
        started_at=plain(run.started_at),
        about=about(summary),
        progress=progress(summary),
        headline=headline(summary),
        first=first_rows(summary.findings),
        ranks=list(run.ranks),
        phases_of=phases_of(summary),
        phases=phase_rows(summary),
        why=[line for line in (split_line(summary), light_line(summary)) if line],
        facts=facts(summary),
        fit_time=duration(run.fit_s),
        fit=list(_fit(summary)),
        findings=list(map(finding_view, summary.findings)),
        others=list(map(finding_view, others)),
        late=[plain(lateness(p)) for p in summary.synchronisation if p.straggler is not None],
        rank_columns=list(columns),
        rank_rows=[
            RankRow(rank=rank, cells=[_cell(values, place) for values in columns.values()])
            for place, rank in enumerate(run.ranks if columns else ())
        ],
        readings=[_reading(name, reading) for name, reading in summary.readings.items()],
        warnings=list(map(plain, summary.warnings)),
        remarks=remarks(summary),
    )


def _fit(summary: Summary) -> Iterator[NamedValue]:
    whole_s = summary.run.fit_s
    for name, spent_s in ledger(summary):
        if spent_s and whole_s:
            yield NamedValue(name=name, value=duration(spent_s), fraction=spent_s / whole_s)


_OF_RANKS = {
    "step": STEP_MEAN_S,
    "data wait": PHASE_DATA_WAIT_S,
    "forward": PHASE_FORWARD_S,
    "backward": PHASE_BACKWARD_S,
    "callbacks": PHASE_CALLBACKS_S,
    "loop": PHASE_LOOP_S,
    "all-reduce tail": ALLREDUCE_TAIL_S,
}


def _rank_columns(summary: Summary) -> dict[str, tuple[float | None, ...]]:
    """Seconds of each rank in a steady step; empty for a single rank."""
    if len(summary.run.ranks) < 2:
        return {}
    columns = {head: summary.readings[name].per_rank for head, name in _OF_RANKS.items()}
    for point in summary.synchronisation:
        skews = tuple(wait - point.transfer_s for wait in point.wait_s)
        columns[f"skew at {point.point}"] = skews
    return {
        head: values
        for head, values in columns.items()
        if any(value is not None for value in values)
    }


def _cell(values: tuple[float | None, ...], place: int) -> str:
    value = values[place] if place < len(values) else None
    return "not measured" if value is None else duration(value)


def _reading(name: str, reading: Reading) -> ReadingRow:
    return ReadingRow(
        name=name,
        value="" if reading.value is None else amount(reading.value, reading.unit, name),
        interval=_interval(name, reading),
        steps=reading.n,
        reason=plain(reading.reason or ""),
    )


def _interval(name: str, reading: Reading) -> str:
    if reading.low is None or reading.high is None:
        return ""
    low, high = (amount(end, reading.unit, name) for end in (reading.low, reading.high))
    return f"{low} – {high}"
