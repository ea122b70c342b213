"""Cases and tables as text for a terminal: every figure that a page shows is in it."""

import re
from collections.abc import Iterator, Sequence

from recipes.cases.case import Case, MeasuredRow, Plot, Quantity, RecipeRun, Timeline
from recipes.cases.verdicts import decided, factor_of
from trainperf.core.formatting.table import UNKNOWN, Table, text_table
from trainperf.core.formatting.units import count, duration, plural, rate, share, size, times
from trainperf.core.formatting.wrap import WIDTH, wrapped


UNPUBLISHED = "no published figure found"

AT_MOST = (
    "“At most” in what trainperf said is a bound: the whole part gone, and, on a host, what is "
    "left faster as well, since it finds its caches warm."
)

HEAD = ("", "measured", "ratio", "95 % interval", "rounds", "")


_BOUND = re.compile(r"at most\s+[\d,.]+×")
"""A finding's bound of its gain."""


def shown(value: float | None, unit: Quantity) -> str:
    """A value with its unit; a dash is *not measured*."""
    if value is None:
        return UNKNOWN
    if unit == "FLOP/s":
        return rate(value).replace("B/s", "FLOP/s")
    say = {"s": duration, "B": size, "B/s": rate, "%": share, "×": times}
    return say[unit](value) if unit in say else count(value) + ("/s" if unit == "1/s" else "")


def run_text(run: RecipeRun) -> list[str]:
    """A whole run, line by line."""
    lines = [run.title, "", *wrapped(run.about), "", *wrapped(facts(run)), ""]
    for case in run.cases:
        lines += [*case_text(case), ""]
    for table in run.tables:
        lines += [table.title, *text_table(table, WIDTH)]
        lines += [line for sentence in table.notes for line in wrapped(sentence)]
        lines.append("")
    for plot in run.plots:
        lines += [plot.title, *text_table(plot_table(plot), WIDTH), ""]
    for timeline in run.timelines:
        lines += [timeline.title, *text_table(timeline_table(timeline), WIDTH), ""]
    if run.cases:
        lines += ["Verdicts", *text_table(overview(run.cases), WIDTH), "", tally(run.cases)]
    return lines


def case_text(case: Case) -> list[str]:
    """One case: claim, before, change, measured, verdict."""
    lines = wrapped(case.claim, lead=f"{case.heading}: ")
    if case.command:
        lines += wrapped(case.command, lead="  alone: ")
    if case.before_note:
        lines += wrapped(case.before_note, lead="  trainperf, before: ")
    lines += _block("" if case.before_note else "trainperf, before", case.before)
    lines += _block("change", case.change)
    if case.measured:
        lines += ["  measured here", *(f"    {line}" for line in text_table(measurements(case)))]
    if case.plot is not None:
        table = text_table(plot_table(case.plot), WIDTH - 4)
        lines += [f"  {case.plot.title}", *(f"    {line}" for line in table)]
    if case.published is not None:
        published = case.published
        lines += wrapped(published.figure, lead="  published: ")
        lines.append(f"    source: {published.source}")
        lines += wrapped(published.differs, lead="    what differs: ")
    else:
        lines.append(f"  published: {UNPUBLISHED}")
    if case.files:
        lines += wrapped(", ".join(case.files), lead="  left: ")
    return [*lines, *wrapped(f"{case.verdict}: {case.reason}", lead="  verdict: ")]


def measurements(case: Case) -> Table:
    """The rows of a case."""
    return Table(head=HEAD, rows=tuple(map(_row, case.measured)), end_words=1)


def overview(cases: Sequence[Case]) -> Table:
    """One row per case."""
    rows = tuple((case.heading, *_ratio(case.deciding), case.verdict) for case in cases)
    head = ("claim", "ratio", "95 % interval", "verdict")
    return Table(head=head, rows=rows, end_words=1)


def tally(cases: Sequence[Case]) -> str:
    """How many of the claims were decided, and how."""
    outcomes = [case.verdict for case in cases]
    counts = {outcome: outcomes.count(outcome) for outcome in dict.fromkeys(outcomes)}
    kinds = ", ".join(f"{outcome} {number}" for outcome, number in counts.items())
    certain = sum(map(decided, outcomes))
    return f"{plural(len(cases), 'claim')}, {certain} decided: {kinds}."


def facts(run: RecipeRun) -> str:
    """Where and how a run was made."""
    machine = ", ".join(f"{name} {value}" for name, value in run.machine.items())
    bounds = any(_BOUND.search(" ".join(case.before)) for case in run.cases)
    return (
        f"{run.command} took {duration(run.took_s)} on: {machine}. A ratio is the median over "
        "rounds of both times in the same round, which need not be the quotient of the two medians."
        f"{f' {AT_MOST}' if bounds else ''}"
    )


def plot_table(plot: Plot) -> Table:
    """The points of a plot, so that its figures can be read."""
    places = sorted({x for line in plot.lines for x, _ in line.points})
    columns = [dict(line.points) for line in plot.lines]
    rows = tuple(
        (shown(x, plot.across_unit), *(shown(column.get(x), plot.up_unit) for column in columns))
        for x in places
    )
    return Table(head=(plot.across, *(line.name for line in plot.lines)), rows=rows)


def timeline_table(timeline: Timeline) -> Table:
    """How long each lane was busy."""
    rows = tuple(
        (lane.name, plural(len(lane.spans), "span"), duration(sum(span[1] for span in lane.spans)))
        for lane in timeline.lanes
    )
    return Table(head=("", "", "busy"), rows=rows)


def _row(row: MeasuredRow) -> tuple[str, ...]:
    rounds = UNKNOWN if row.rounds is None else str(row.rounds)
    return (row.what, shown(row.value, row.unit), *_ratio(row), rounds, row.note)


def _ratio(row: MeasuredRow | None) -> tuple[str, str]:
    if row is None or row.ratio is None:
        return UNKNOWN, UNKNOWN
    if row.low is None or row.high is None:
        return factor_of(row.ratio), UNKNOWN
    if row.low == row.high:
        return factor_of(row.ratio), "exact"
    return factor_of(row.ratio), f"{row.low:.3g}–{row.high:.3g}"


def _block(heading: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield from [f"  {heading}"] if heading else []
        yield from (f"    {line}" for line in lines)
