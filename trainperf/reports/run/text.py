"""The report for a terminal: at most 25 lines, the answer first."""

from collections.abc import Iterable
from dataclasses import dataclass

from rich.text import Text

from trainperf.analysis.rules.distributed.straggler import said as lateness
from trainperf.analysis.summary.schema import Summary
from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.units import Scale, bracket, duration, fine_share, plural
from trainperf.core.phases import Phase
from trainperf.reports.layout.finding_view import (
    NEXT,
    FindingView,
    finding_view,
    first_rows,
    to_act_on,
)
from trainperf.reports.layout.wrap import PLUS, flow, words_of
from trainperf.reports.run.headline import headline
from trainperf.reports.run.rows import (
    PhaseRow,
    device,
    facts,
    ledger,
    not_there,
    phase_rows,
    progress,
    remarks,
)
from trainperf.reports.run.tables import dimension_parts, light_line


MOST_LINES = 25
WIDTH = 100
"""Columns, where the reader's are not known."""

_INDENT = "  "
_LABEL = 6
_CONTINUES = " " * _LABEL
_BAR = 16
_EIGHTHS = " ▏▎▍▌▋▊▉"
_COLOURS = {Phase.DATA_WAIT: "red", Phase.CALLBACKS: "yellow", Phase.LOOP: "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Section:
    """Lines that stand together; of those beyond *keep* the last are dropped first."""

    lines: list[Text]
    keep: int
    apart: bool = False
    """Whether a line is left free before it."""


def render(summary: Summary) -> str:
    """The report as plain text, `WIDTH` columns wide."""
    return "\n".join(line.plain.rstrip() for line in lines(summary)) + "\n"


def lines(summary: Summary, width: int = WIDTH) -> list[Text]:
    """The report line by line, none wider than *width*; styles are Rich's."""
    inner = width - len(_INDENT)
    answer = flow(words_of(headline(summary)), inner, " ", style="bold")
    sections = [
        _Section(lines=answer, keep=3, apart=True),
        _Section(lines=_phases(summary), keep=8, apart=True),
        _Section(lines=_numbers(summary, inner), keep=5, apart=True),
        _Section(lines=_ranks(summary), keep=2),
        _Section(lines=_next(summary, inner), keep=2),
        _Section(lines=_notes(summary.warnings, inner, "yellow"), keep=1),
        _Section(lines=_notes(remarks(summary), inner, "dim"), keep=0),
    ]
    title = flow(_title(summary), width, " · ", style="bold cyan")
    _shorten(sections, MOST_LINES - len(title))
    out = list(title)
    for section in sections:
        if section.lines and section.apart:
            out.append(Text())
        out += [Text(_INDENT).append_text(line) for line in section.lines]
    for line in out:
        line.truncate(width, overflow="ellipsis")
    return out


def _shorten(sections: list[_Section], most: int) -> None:
    """Drop lines from the end until the whole fits."""
    while sum(len(s.lines) + (s.apart and bool(s.lines)) for s in sections) > most:
        section = next((s for s in reversed(sections) if len(s.lines) > s.keep), None)
        if section is None:
            return
        went = section.lines.pop()
        if section.lines and went.plain.startswith(_CONTINUES):
            section.lines[-1].append(" …")


def _title(summary: Summary) -> list[str]:
    run = summary.run
    ranks = plural(len(run.ranks), "rank")
    return ["trainperf", plain(run.name), ranks, device(summary), plain(progress(summary))]


def _phases(summary: Summary) -> list[Text]:
    rows = phase_rows(summary)
    if not rows:
        return []
    scale = Scale.fine(sum(row.seconds for row in rows))
    numbers = [scale.say(row.seconds) for row in rows]
    place = max(len(number) for number in numbers)
    return [
        _phase(summary, row, number.rjust(place)) for row, number in zip(rows, numbers, strict=True)
    ]


def _phase(summary: Summary, row: PhaseRow, number: str) -> Text:
    absent = not_there(summary, row)
    if absent:
        return Text(f"{row.label:<10}{absent:>{len(number)}}", style="dim")
    line = Text(f"{row.label:<10}{number}  ")
    line.append(_bar(row.fraction), style=_COLOURS.get(row.phase, "green"))
    line.append(f"  {fine_share(row.fraction):>7}")
    if row.note:
        line.append(f"   {plain(row.note)}", style="dim")
    return line


def _bar(fraction: float) -> str:
    eighths = round(min(max(fraction, 0.0), 1.0) * _BAR * 8)
    full, rest = divmod(eighths, 8)
    return ("█" * full + (_EIGHTHS[rest] if rest else "")).ljust(_BAR)


def _why(summary: Summary, width: int) -> list[Text]:
    """What the step is spent on, and how far that is from what the chip allows."""
    spent = [] if summary.dimensions is None else dimension_parts(summary.dimensions)
    parts = [f"spent on {spent[0]}", *spent[1:]] if spent else []
    light = "" if summary.light is None else light_line(summary.light)
    return [*flow(parts, width, " · "), *flow(words_of(light), width)]


def _numbers(summary: Summary, width: int) -> list[Text]:
    said = [
        f"{fact.said} {fact.name}" if fact.first else f"{fact.name} {fact.said}"
        for fact in facts(summary)
    ]
    return [*_why(summary, width), *flow(said, width, " · "), *flow(_fit(summary), width, PLUS)]


def _fit(summary: Summary) -> list[str]:
    entries = [(name, spent_s) for name, spent_s in ledger(summary) if name == "steps" or spent_s]
    scale = Scale.of(max(summary.run.fit_s, 1e-9))
    shown = [
        (name, spent_s)
        for name, spent_s in entries
        if name == "steps" or float(scale.number(spent_s).replace(",", ""))
    ]
    parts = [f"{name} {scale.number(spent_s)}" for name, spent_s in shown]
    parts[0] = f"fit {scale.say(summary.run.fit_s)} = {parts[0]}"
    return parts


def _ranks(summary: Summary) -> list[Text]:
    if len(summary.run.ranks) < 2:
        return []
    spreads = [
        _spread(summary, "phase_data_wait_s", "data wait"),
        _spread(summary, "allreduce_tail_s", "tail"),
    ]
    skew = summary.readings["allreduce_skew_s"]
    if skew.value is not None:
        spreads.append(f"skew {duration(skew.value)}{bracket(skew.value, skew.low, skew.high)}")
    known = [spread for spread in spreads if spread]
    named = [point for point in summary.synchronisation if point.straggler is not None]
    said = [_joined("ranks", " · ".join(known))] if known else []
    return [*said, *(_joined("skew", lateness(point), "red") for point in named)]


def _spread(summary: Summary, name: str, label: str) -> str:
    values = [
        (found, rank)
        for found, rank in zip(summary.readings[name].per_rank, summary.run.ranks, strict=False)
        if found is not None
    ]
    if not values:
        return ""
    (least, _), (most, rank) = min(values), max(values)
    scale = Scale.of(most)
    return f"{label} {scale.number(least)}–{scale.say(most)} (rank {rank})"


def _next(summary: Summary, width: int) -> list[Text]:
    acted = to_act_on(summary.findings)
    others = acted[1:] + [finding for finding in summary.findings if finding not in acted]
    lines = []
    for row in first_rows(summary.findings):
        lines += _paragraph(row.label, row.text, width, "bold" if row.label == NEXT else "")
    return [*lines, *(_joined("also", _also(finding_view(finding))) for finding in others)]


def _also(finding: FindingView) -> str:
    return f"{finding.headline} · {finding.text(NEXT)}"


def _notes(sentences: Iterable[str], width: int, style: str) -> list[Text]:
    return [line for said in sentences for line in _paragraph("note", said, width, style)]


def _paragraph(label: str, text: str, width: int, style: str) -> list[Text]:
    said = flow(words_of(text), width - len(_CONTINUES), " ")
    labels = [label, *[""] * (len(said) - 1)]
    return [_joined(label, line.plain, style) for label, line in zip(labels, said, strict=True)]


def _joined(label: str, text: str, style: str = "") -> Text:
    return Text(f"{label:<{_LABEL}}{plain(text)}", style=style)
