"""The report for a terminal: at most 25 lines, the answer first; and the full report below it."""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from trainperf.analysis.summary.schema import Summary
from trainperf.core.formatting.table import Table, text_table
from trainperf.core.formatting.units import Scale, confidence_interval, duration
from trainperf.core.formatting.wrap import PLUS, WIDTH, columns_of, words_of
from trainperf.core.readings import ALLREDUCE_SKEW_S, ALLREDUCE_TAIL_S, PHASE_DATA_WAIT_S
from trainperf.reports.layout.finding_view import DO, NEXT, finding_text
from trainperf.reports.layout.terminal import flow
from trainperf.reports.run.ranks_view import late_lines
from trainperf.reports.run.rows import PhaseRow, ledger
from trainperf.reports.run.run_view import RunView, run_view
from trainperf.reports.run.tables import tables


MOST_LINES = 25

_APART = " · "
_INDENT = "  "
_LABEL = 6
_CONTINUES = " " * _LABEL
_BAR = 16
_EIGHTHS = " ▏▎▍▌▋▊▉"
_COLOURS = {"data_wait": "red", "callbacks": "yellow", "loop": "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    """Lines that belong together; of those beyond *keep* the last are dropped first."""

    lines: list[Text]
    keep: int
    apart: bool = False
    """Whether a line is left free before it."""


def render(summary: Summary) -> str:
    """The report as plain text, `WIDTH` columns wide."""
    return "\n".join(line.plain.rstrip() for line in lines(summary)) + "\n"


def lines(summary: Summary, width: int = WIDTH, *, whole: bool = False) -> list[Text]:
    """The report line by line, none wider than *width*; styles are Rich's.

    With *whole* no line is dropped, however many there are.
    """
    view = run_view(summary)
    parts = ["trainperf", view.name, view.about, *view.progress.split(_APART)]
    title = flow(parts, width, _APART, "bold cyan")
    most = sys.maxsize if whole else MOST_LINES - len(title)
    return _cut([*title, *body(summary, width, most)], width)


def body(summary: Summary, width: int, most: int) -> list[Text]:
    """The report without its title, in about *most* lines, the answer first."""
    view, inner = run_view(summary), width - len(_INDENT)
    sections = [
        _Section(lines=flow(words_of(view.headline), inner, style="bold"), keep=3, apart=True),
        _Section(lines=_phases(view), keep=8, apart=True),
        _Section(lines=_numbers(summary, view, inner), keep=4, apart=True),
        _Section(lines=_ranks(summary, view, inner), keep=3),
        _Section(lines=_findings(view, inner), keep=2),
        _Section(lines=_notes(view.warnings, inner, "yellow"), keep=1),
        _Section(lines=_notes(view.remarks, inner, "dim"), keep=0),
    ]
    _shorten(sections, most)
    out: list[Text] = []
    for section in sections:
        if section.lines and section.apart:
            out.append(Text())
        out += [Text(_INDENT).append_text(line) for line in section.lines]
    return _cut(out, width)


def full_lines(summary: Summary, width: int) -> list[Text]:
    """All tables, then every finding with all that is known of it; none wider than *width*."""
    return [*table_lines(tables(summary), width), *finding_lines(summary, width)]


def table_lines(shown: Iterable[Table], width: int) -> list[Text]:
    """Tables, one below the other; none wider than *width*."""
    out: list[Text] = []
    for table in shown:
        out += [Text(), Text(f"  {table.title}", style="bold cyan"), *_table(table, width - 4)]
    return _cut(out, width)


def finding_lines(summary: Summary, width: int) -> list[Text]:
    """Every finding with all that is known of it; none wider than *width*, none without one."""
    findings = run_view(summary).findings
    out: list[Text] = []
    if findings:
        out += [Text(), Text("  Findings, by what they return", style="bold cyan")]
    for place, finding in enumerate(findings, start=1):
        title, rest = finding_text(place, finding, width - 4)
        out += [Text("    ").append(line, style="bold") for line in title]
        out += [Text(f"    {line}") for line in rest]
    return _cut(out, width)


def _cut(report: list[Text], width: int) -> list[Text]:
    for line in report:
        line.truncate(width, overflow="ellipsis")
    return report


def _shorten(sections: list[_Section], most: int) -> None:
    """Drop lines from the end until the whole fits."""
    while sum(len(s.lines) + (s.apart and bool(s.lines)) for s in sections) > most:
        section = next((s for s in reversed(sections) if len(s.lines) > s.keep), None)
        if section is None:
            return
        dropped = section.lines.pop()
        if section.lines and dropped.plain.startswith(_CONTINUES):
            section.lines[-1].append(" …")


def _phases(view: RunView) -> list[Text]:
    place = max((len(row.time) for row in view.phases), default=0)
    return [_phase(row, place) for row in view.phases]


def _phase(row: PhaseRow, place: int) -> Text:
    if row.absent:
        return Text(f"{row.label:<10}{row.absent:>{place}}", style="dim")
    line = Text(f"{row.label:<10}{row.time:>{place}}  ")
    line.append(_bar(row.fraction), style=_COLOURS.get(row.key, "green"))
    line.append(f"  {row.share:>7}")
    if row.note:
        line.append(f"   {row.note}", style="dim")
    return line


def _bar(fraction: float) -> str:
    eighths = round(min(max(fraction, 0.0), 1.0) * _BAR * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(_BAR)


def _numbers(summary: Summary, view: RunView, width: int) -> list[Text]:
    why = [line for sentence in view.why for line in _broken(sentence, width)]
    facts = flow([fact.sentence for fact in view.facts], width, " · ")
    return [*why, *facts, *flow(_fit(summary), width, PLUS)]


def _broken(sentence: str, width: int, between: str = " · ") -> list[Text]:
    """Broken between parts where each has room on a line of its own, else between words."""
    *parts, last = sentence.split(between)
    # A comma stays at the end of its line, a dot between two numbers does not.
    ended = between.rstrip() if between[0] != " " else ""
    parts = [*(f"{part}{ended}" for part in parts), last]
    if max(map(columns_of, parts)) <= width:
        return flow(parts, width, between.removeprefix(ended))
    return flow(words_of(sentence), width)


def _fit(summary: Summary) -> list[str]:
    """The terms of the fit's sum, those that would be shown as zero dropped; none of no time."""
    fit_s = summary.run.fit_s
    if not fit_s:
        return []
    scale = Scale.of(fit_s)
    parts = [
        f"{name} {scale.number(spent_s)}"
        for name, spent_s in ledger(summary)
        if name == "steps" or float(scale.number(spent_s).replace(",", ""))
    ]
    return [f"{summary.run.loop.run_noun} {scale.say(fit_s)} = {parts[0]}", *parts[1:]]


def _ranks(summary: Summary, view: RunView, width: int) -> list[Text]:
    if len(summary.run.ranks) < 2:
        return []
    spreads = [
        _spread(summary, PHASE_DATA_WAIT_S, "data wait"),
        _spread(summary, ALLREDUCE_TAIL_S, "tail"),
    ]
    skew = summary.readings[ALLREDUCE_SKEW_S]
    if skew.value is not None:
        interval = confidence_interval(skew.value, skew.low, skew.high)
        spreads.append(f"skew {duration(skew.value)}{interval}")
    inner = width - len(_CONTINUES)
    measured = [spread for spread in spreads if spread]
    wrapped = flow(measured, inner, " · ")
    ranks = _hanging("ranks", wrapped)
    late = [
        line for late in view.late for line in _hanging("skew", _broken(late, inner, "; "), "red")
    ]
    lost = [
        line
        for sentence in view.ranks_lost
        for line in _hanging("lost", _broken(sentence, inner, ", "))
    ]
    often = [Text(line) for line in late_lines(summary)]
    return [*ranks, *late, *(_hanging("often", often, "red") if often else []), *lost]


def _spread(summary: Summary, name: str, label: str) -> str:
    values = [
        (value, rank)
        for value, rank in zip(summary.readings[name].per_rank, summary.run.ranks, strict=False)
        if value is not None
    ]
    if not values:
        return ""
    (least, _), (most, rank) = min(values), max(values)
    scale = Scale.of(most)
    return f"{label} {scale.number(least)}–{scale.say(most)} (rank {rank})"


def _findings(view: RunView, width: int) -> list[Text]:
    """What to do first and where; of the other findings a line each."""
    out = []
    for row in view.first:
        out += _paragraph(row.label, row.text, width, "bold" if row.label == NEXT else "")
    for other in view.others:
        out.append(_labelled("also", f"{other.headline} · {other.text(DO)}"))
    return out


def _notes(sentences: Iterable[str], width: int, style: str) -> list[Text]:
    return [line for note in sentences for line in _paragraph("note", note, width, style)]


def _paragraph(label: str, text: str, width: int, style: str = "") -> list[Text]:
    return _hanging(label, flow(words_of(text), width - len(_CONTINUES)), style)


def _hanging(label: str, wrapped: Sequence[Text], style: str = "") -> list[Text]:
    return [
        _labelled("" if place else label, line.plain, style) for place, line in enumerate(wrapped)
    ]


def _labelled(label: str, text: str, style: str = "") -> Text:
    return Text(f"{label:<{_LABEL}}{text}", style=style)


def _table(table: Table, width: int) -> Iterator[Text]:
    if table.rows:
        grid = text_table(table, width)
        for place, line in enumerate(grid):
            is_head = place < len(grid) - len(table.rows)
            yield Text(f"    {line}", style="dim" if is_head else "")
    for note in table.notes:
        yield from (Text("    ").append(line.plain, "dim") for line in flow(words_of(note), width))
