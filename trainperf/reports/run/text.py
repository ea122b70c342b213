"""The short report for a terminal: at most 25 lines, the answer first."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TextIO

from rich.text import Text

from trainperf.analysis.summary.schema import Summary
from trainperf.core.formatting.wrap import PLUS, WIDTH
from trainperf.reports.layout.document import Part, Pictured, Sentence, items
from trainperf.reports.layout.finding_view import DO, finding_view, to_act_on
from trainperf.reports.layout.terminal import styled, width_of
from trainperf.reports.layout.text import cut_off, flow, text_lines
from trainperf.reports.run.document import first, phases, run_document, why
from trainperf.reports.run.headline import headline
from trainperf.reports.run.ranks import rank_sentences
from trainperf.reports.run.rows import about, facts, fit_sum, progress, remarks, script_sum


MOST_LINES = 25

_APART = " · "
_CONTINUES = " " * 8
"""Begins a line that goes on a labelled one."""


def render(summary: Summary) -> str:
    """The report as plain text, `WIDTH` columns wide."""
    return "\n".join(line.plain.rstrip() for line in lines(summary)) + "\n"


def rendered(summary: Summary, stream: TextIO, *, full: bool = False) -> str:
    """The text report for a stream: styled if it is a terminal that wants it, else plain.

    In *full* the whole document.
    """
    width = width_of(stream)
    shown = text_lines(run_document(summary), width) if full else lines(summary, width)
    return styled(shown, stream)


def lines(summary: Summary, width: int = WIDTH) -> list[Text]:
    """The report line by line, none wider than *width*; styles are Rich's."""
    parts = ["trainperf", summary.run.name, about(summary), *progress(summary).split(_APART)]
    title = flow(parts, width, _APART, "bold cyan")
    return cut_off([*title, *body(summary, width, MOST_LINES - len(title))], width)


def body(summary: Summary, width: int, most: int = sys.maxsize) -> list[Text]:
    """The report without its title, in about *most* lines, the answer first."""
    blocks = [
        ([*([Text()] if apart else []), *shown], keep + apart)
        for parts, keep, apart in _parts(summary)
        if (shown := text_lines(parts, width))
    ]
    left = sum(len(shown) for shown, _ in blocks) - most
    # Of the last blocks those lines go first that are beyond what is kept of each.
    for shown, keep in reversed(blocks):
        dropped = shown[max(keep, len(shown) - max(left, 0)) :]
        del shown[len(shown) - len(dropped) :]
        left -= len(dropped)
        if dropped and shown and dropped[0].plain.startswith(_CONTINUES):
            shown[-1].append(" …")
    return cut_off([line for shown, _ in blocks for line in shown], width)


def _parts(summary: Summary) -> Iterator[tuple[Sequence[Part], int, bool]]:
    """What is told, how many lines of it are kept, and whether a line is free before it."""
    sums = (PLUS.join(script_sum(summary)), PLUS.join(fit_sum(summary)))
    numbers = _APART.join(facts(summary))
    yield [Sentence(text=headline(summary), kind="answer")], 3, True
    yield [_without_head(part) for part in phases(summary)], 8, True
    yield (
        [
            *why(summary),
            *([Sentence(text=numbers, joint=_APART)] if numbers else []),
            *(Sentence(text=terms, joint=PLUS) for terms in sums if terms),
        ],
        4,
        True,
    )
    yield rank_sentences(summary), 3, False
    yield [*first(summary), *_others(summary)], 2, False
    yield items(summary.warnings, "warn", "note"), 1, False
    yield items(remarks(summary), "soft", "note"), 0, False


def _without_head(part: Part) -> Part:
    if not isinstance(part, Pictured):
        return part
    table = part.table
    return replace(part, table=replace(table, head=("",) * len(table.head), notes=()))


def _others(summary: Summary) -> list[Part]:
    """Of the other findings a line each, those that ask for a change before the others."""
    acted = to_act_on(summary.findings)
    others = acted[1:] + [finding for finding in summary.findings if finding not in acted]
    views = map(finding_view, others)
    return [
        Sentence(text=f"{view.headline} · {view.text(DO)}", label="also", kind="line")
        for view in views
    ]
