"""Everything a report says about a run, as text: the renderers only lay it out, the tab sends it.

The headline is the first sentence of every report: step time, its largest share, and what to change
first.  Every name that came from a file is put on one line without control characters; escaping for
markdown and HTML is left to the renderer.
"""

from collections.abc import Iterator, Sequence

import msgspec

from trainperf.analysis.rules.distributed.straggler import lateness
from trainperf.analysis.summary.schema import State, Summary
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.units import confidence_interval, duration, plural, share
from trainperf.core.phases import Phase
from trainperf.core.readings import (
    ALLREDUCE_TAIL_S,
    DATA_STALL_FRACTION,
    PHASE_BACKWARD_S,
    PHASE_CALLBACKS_S,
    PHASE_DATA_WAIT_S,
    PHASE_FORWARD_S,
    PHASE_LOOP_S,
    STEP_MEAN_S,
    STEP_S,
)
from trainperf.meters.fold import Reading
from trainperf.reports.layout.finding_view import (
    NO_FINDING,
    FindingRow,
    FindingView,
    finding_view,
    first_rows,
    gain,
    to_act_on,
)
from trainperf.reports.run.rows import (
    NamedValue,
    PhaseRow,
    about,
    amount,
    ending,
    facts,
    ledger,
    no_trace,
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
    ending: str
    """The state in words."""
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
    no_finding: str
    """In place of findings."""
    others: list[FindingView]
    """Findings but the first to act on, those that ask for a change before the others."""
    late: list[str]
    """Who is late, where a synchronisation point has a rank to name."""
    rank_columns: list[str]
    rank_rows: list[RankRow]
    readings: list[ReadingRow]
    no_trace: str
    """In place of captures."""
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
        ending=ending(summary),
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
        no_finding=NO_FINDING,
        others=list(map(finding_view, others)),
        late=[plain(lateness(p)) for p in summary.synchronisation if p.straggler is not None],
        rank_columns=list(columns),
        rank_rows=[
            RankRow(rank=rank, cells=[_cell(values, place) for values in columns.values()])
            for place, rank in enumerate(run.ranks if columns else ())
        ],
        readings=[_reading(name, reading) for name, reading in summary.readings.items()],
        no_trace=no_trace(summary),
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


COMPUTE = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
_NAMES = {
    Phase.DATA_WAIT: "data wait",
    Phase.H2D: "copying the batch to the device",
    Phase.CALLBACKS: "callbacks",
    Phase.LOOP: "the framework's loop between steps",
    Phase.OTHER: "outside every phase",
}
_PHASE_OF_FINDING = {
    "data_wait": Phase.DATA_WAIT,
    "transfer": Phase.H2D,
    "callbacks": Phase.CALLBACKS,
    "loop": Phase.LOOP,
}
"""Findings about one phase: its share is named first, though compute may take a larger one."""

FAR_FROM_MEDIAN = 0.05
"""Relative distance of mean and median above which the headline gives both."""

_HIDDEN_STALL = 0.25
"""Of the host's wait for data: with less than that lost on the device, the wait is hidden."""


def headline(summary: Summary) -> str:
    """Step time, its largest share, and what to do first with the most it can gain."""
    return plain(" ".join(filter(None, (_where(summary), _what_first(summary)))))


def _where(summary: Summary) -> str:
    run, step = summary.run, summary.readings[STEP_S]
    if not run.steps:
        return f"No step was recorded in a fit of {duration(run.fit_s)}."
    rows = phase_rows(summary)
    largest = _largest(summary, rows)
    mean_s = sum(row.seconds for row in rows)
    if step.value is not None:
        interval = confidence_interval(step.value, step.low, step.high)
        return f"Step time {duration(step.value)}{interval}{_mean(step.value, mean_s)}{largest}."
    if run.steps == 1:
        return f"One step of {duration(mean_s)}{largest}."
    return f"No steady state in {plural(run.steps, 'step')}: mean {duration(mean_s)}{largest}."


def _mean(median_s: float, mean_s: float) -> str:
    """The mean, where steps vary so much that the phases' means do not add up to the median."""
    if abs(mean_s - median_s) <= FAR_FROM_MEDIAN * median_s:
        return ""
    return f", mean {duration(mean_s)}"


def _what_first(summary: Summary) -> str:
    first = next(iter(to_act_on(summary.findings)), None)
    # A finding that gains nothing only explains what looks like a loss.
    if first is not None and first.fraction != 0.0:
        most = gain(first)
        return f"First: {_lowered(first.advice)}{f' — {most}' if most else ''}."
    if not summary.run.steady_steps:
        return ""
    return NO_FINDING


def _lowered(advice: str) -> str:
    """The imperative inside a sentence; a name in capitals keeps them."""
    first = advice.partition(" ")[0]
    return advice if first[1:] != first[1:].lower() else advice[:1].lower() + advice[1:]


def _largest(summary: Summary, rows: Sequence[PhaseRow]) -> str:
    first = next(iter(to_act_on(summary.findings)), None)
    if first is not None and first.fraction is not None:
        if first.id == "straggler":
            return f"; {share(first.fraction)} of it is lost to ranks waiting for each other"
        if first.id in _PHASE_OF_FINDING:
            name = _NAMES[_PHASE_OF_FINDING[first.id]]
            slowest = " on the slowest rank" if len(summary.run.ranks) > 1 else ""
            work = _larger_work(summary, rows, first.fraction)
            return f"; {share(first.fraction)} of it is {name}{slowest}{work}"
    top = max(rows, key=lambda row: row.fraction, default=None)
    if top is None:
        return ""
    phase = Phase(top.phase)
    if phase is Phase.DATA_WAIT and _hidden(summary, top):
        return f"; {share(top.fraction)} of it is data wait, hidden behind a busy device"
    if phase not in COMPUTE:
        return f"; {share(top.fraction)} of it is {_NAMES[phase]}"
    parts = " (forward, backward, optimizer)" if _host_computes(summary) else ""
    return f"; {_work_share(rows)} of it is {_work_name(summary)}{parts}"


def _larger_work(summary: Summary, rows: Sequence[PhaseRow], fraction: float) -> str:
    """The work itself, where one phase of it is larger than the share that can be acted on."""
    work = [row.fraction for row in rows if row.phase in COMPUTE]
    if max(work, default=0.0) <= fraction:
        return ""
    return f" and {_work_share(rows)} {_work_name(summary)}"


def _work_share(rows: Sequence[PhaseRow]) -> str:
    return share(sum(row.fraction for row in rows if row.phase in COMPUTE))


def _host_computes(summary: Summary) -> bool:
    """Whether host time in forward, backward and optimizer is compute time.

    Another device is only given its work there; with several ranks the wait for the other ranks'
    gradients is in it.
    """
    return summary.run.device == "cpu" and len(summary.run.ranks) == 1


def _work_name(summary: Summary) -> str:
    if _host_computes(summary):
        return "compute"
    host = " (host time)" if summary.run.device != "cpu" else ""
    return f"forward, backward and optimizer{host}"


def _hidden(summary: Summary, row: PhaseRow) -> bool:
    stalled = summary.readings[DATA_STALL_FRACTION].value
    return (
        summary.run.device != "cpu"
        and stalled is not None
        and stalled < _HIDDEN_STALL * row.fraction
    )
