"""Ranks of a run in words: the map of those that matter, who was late, and what that cost."""

import math

import numpy as np

from trainperf.analysis.summary.late_ranks import lateness
from trainperf.analysis.summary.ranks import RankColumn, RankMap, notably_late, rank_map, saved_s
from trainperf.analysis.summary.schema import Summary
from trainperf.core.choice import texts_of
from trainperf.core.formatting.table import UNKNOWN, Table
from trainperf.core.formatting.units import (
    Scale,
    confidence_interval,
    duration,
    plural,
    ranks_named,
    share,
    words,
)
from trainperf.core.loop_kind import meeting_place
from trainperf.core.readings import (
    ALLREDUCE_SKEW_S,
    ALLREDUCE_TAIL_S,
    STEP_MEAN_S,
    phase_reading,
)
from trainperf.reports.layout.document import Part, Sentence, items, missing


HOTTEST = 0.25
"""Share of the step by which a cell has its full shade."""

_SHADES = " ░▒▓█"

_NAMED = 0.005
"""Share of the step from which being late is worth a number."""

MOST_LATE = 2
"""Ranks that are named so in the short report."""


def rank_sentences(summary: Summary) -> list[Part]:
    """How far the ranks are apart, who is late and how often, and what that cost."""
    if len(summary.run.ranks) < 2:
        return []
    skew, config = summary.readings[ALLREDUCE_SKEW_S], summary.run.config
    spreads = texts_of(
        _spread(summary, phase_reading("data_wait"), "data wait"),
        _spread(summary, ALLREDUCE_TAIL_S, "tail"),
        skew.value is not None
        and f"skew {duration(skew.value)}{confidence_interval(skew.value, skew.low, skew.high)}",
    )
    apart = " · ".join(spreads)
    late = [lateness(point, config) for point in summary.synchronisation if point.late]
    often = [
        f"rank {rank:,} late at {meeting_place(point.point, config)} in {share(fraction)} of "
        f"{plural(point.n, 'step')}"
        for point in summary.synchronisation
        if not point.late
        for rank, fraction in notably_late(point).items()
    ]
    return [
        *([Sentence(text=apart, label="ranks", joint=" · ")] if apart else []),
        *(Sentence(text=text, label="skew", kind="bad", joint="; ") for text in late),
        *items(often[:MOST_LATE], "bad", "often"),
        *(Sentence(text=text, label="lost", joint=", ") for text in ranks_lost(summary)),
    ]


def _spread(summary: Summary, name: str, label: str) -> str:
    per_rank = zip(summary.readings[name].per_rank, summary.run.ranks, strict=False)
    values = [(value, rank) for value, rank in per_rank if value is not None]
    if not values:
        return ""
    (least, _), (most, rank) = min(values), max(values)
    scale = Scale.of(most)
    return f"{label} {scale.number(least)}–{scale.say(most)} (rank {rank})"


def ranks_lost(summary: Summary) -> list[str]:
    """The step without late ranks, in a sentence; none for a single rank.

    E.g. `up to 17.5 ms per step: 82.5 ms instead of 100 ms if rank 3 is as fast as …`.  It is the
    most that can be saved: devices at work may cover a part of the delay, and ranks that no longer
    wait take caches and CPUs from each other.
    """
    points, step_s = summary.synchronisation, summary.value(STEP_MEAN_S)
    if not step_s or not points or len(summary.run.ranks) < 2:
        return []
    late = list(dict.fromkeys(each.rank for point in points for each in point.late))
    who = "every rank is as fast as the median one"
    if late:
        who = f"{ranks_named(late)} {'is' if len(late) == 1 else 'are'} as fast as the others"
    without_s = max(0.0, step_s - saved_s(summary, "named_s" if late else "even_s"))
    lost = f"up to {duration(step_s - without_s)} per step"
    return [f"{lost}: {duration(without_s)} instead of {duration(step_s)} if {who}"]


def ranks_section(summary: Summary) -> list[Part]:
    """What each rank does and waits for; for a single rank why there is nothing."""
    if len(summary.run.ranks) < 2 and summary.run.world_size < 2:
        return []
    why = summary.readings[ALLREDUCE_TAIL_S].reason or "not measured in this run"
    nothing = [] if summary.synchronisation else missing([("All-reduce tail", why)])
    return [*rank_sentences(summary), *nothing, *of_ranks(summary)]


def of_ranks(summary: Summary) -> list[Table]:
    """The map of the ranks as a table; empty for a single rank."""
    of = rank_map(summary)
    if of is None:
        return []
    scales = [Scale.of(max(1e-9, float(np.nanmax(column.values_s)))) for column in of.columns]
    columns = list(zip(of.columns, scales, strict=True))
    typical = [UNKNOWN if c.kind == "late" else scale.say(c.typical_s) for c, scale in columns]
    rows = [
        (f"{summary.run.ranks[place]:,}", *(_cell(place, *each) for each in columns))
        for place in of.shown
    ]
    heads = {"phase": "", "wait": "wait at ", "late": "late at "}
    return [
        Table(
            title="A steady step, rank by rank",
            head=("rank", *(f"{heads[each.kind]}{words(each.name)}" for each in of.columns)),
            rows=(("typical", *typical), *rows),
            notes=_notes(summary, of),
        )
    ]


def _cell(place: int, column: RankColumn, scale: Scale) -> str:
    """The figure of a rank, shaded by how far it is beyond the typical rank's."""
    seconds, excess = float(column.values_s[place]), float(column.excess[place])
    if math.isnan(seconds) or (column.kind == "late" and excess < _NAMED):
        return UNKNOWN
    heat = 0.0 if math.isnan(excess) else min(1.0, max(0.0, excess / HOTTEST))
    shade = _SHADES[math.ceil(heat * (len(_SHADES) - 1) - 0.5)]
    return f"{shade} {scale.say(seconds)}".strip()


def _notes(summary: Summary, of: RankMap) -> tuple[str, ...]:
    which = f"the {len(of.shown)} that differ most" if of.shown else "none differs notably"
    step = duration(summary.value(STEP_MEAN_S) or 0.0)
    other = f"; at other: at {meeting_place('other', summary.run.config)}"
    has_other = any(point.point == "other" for point in summary.synchronisation)
    return texts_of(
        len(of.shown) < len(summary.run.ranks)
        and f"of {plural(len(summary.run.ranks), 'rank')} {which}",
        f"means of a steady step, {step}; typical is the median rank, and late is after it",
        f"backward is without the wait in it{other if has_other else ''}",
        f"{_SHADES[1:]} beyond the typical rank by up to {share(HOTTEST)} of the step",
    )
