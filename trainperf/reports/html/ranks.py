"""Ranks on the page: those that matter."""

from trainperf.analysis.summary.schema import Summary, SyncPoint
from trainperf.core.formatting.html.markup import Markup, bullets, paragraph, table, text
from trainperf.core.formatting.units import duration, plural
from trainperf.core.loop_kind import meeting_place
from trainperf.core.readings import ALLREDUCE_TAIL_S
from trainperf.reports.html.components import heading, missing
from trainperf.reports.run.ranks_view import HeatCell, RanksView
from trainperf.reports.run.run_view import RunView


_POINTS = {"backward": "at the all-reduce, in backward", "loop": "before every fetch, in the loop"}


_DEEPEST = 0.6
"""Of a colour behind a figure, so that it can be read."""


def ranks(summary: Summary, view: RunView) -> Markup:
    """What each rank does and waits for; for a single rank why there is nothing."""
    if len(summary.run.ranks) < 2 and summary.run.world_size < 2:
        return paragraph("One rank: no waiting for other ranks.", "soft")
    why = summary.readings[ALLREDUCE_TAIL_S].reason or "not measured in this run"
    nothing = "" if summary.synchronisation else missing([("All-reduce tail", why)])
    return Markup(
        bullets([*view.late, *view.ranks_lost])
        + "".join(_point(point, summary) for point in summary.synchronisation)
        + nothing
        + ("" if view.rank_map is None else _map(summary, view.rank_map))
    )


def _point(point: SyncPoint, summary: Summary) -> Markup:
    place = meeting_place(point.point, summary.run.config)
    where = _POINTS.get(point.point, f"at {place}")
    # Elsewhere a phase's own work is in the least time that any rank spends there.
    least = "waits" if point.point in _POINTS else "spends"
    what = " for the transfer" if point.point in _POINTS else " there, waiting or not"
    return paragraph(
        f"Wait {where}: every rank {least} {duration(point.transfer_s)}{what}; the first "
        f"to arrive waits another {duration(point.lost_s)} for the last, on average over "
        f"{plural(point.n, 'steady step')}."
    )


def _map(summary: Summary, view: RanksView) -> Markup:
    few = len(view.ranks) == len(summary.run.ranks)
    rows = [(row.label, *map(_cell, row.cells)) for row in view.ranks]
    return Markup(
        heading("A steady step, rank by rank" if few else "The ranks that differ most")
        + table(("rank", *view.columns), [("typical", *view.typical), *rows])
        + paragraph(
            ". ".join(note[:1].upper() + note[1:] for note in view.notes) + ".", "soft small"
        )
    )


def _cell(cell: HeatCell) -> Markup | str:
    if not cell.heat:
        return cell.value
    colour = f"var(--{'accent' if cell.waits else 'bad'}) {cell.heat * _DEEPEST:.0%}"
    style = f"background:color-mix(in srgb, {colour}, transparent)"
    return Markup(f'<span class="heat" style="{style}">{text(cell.value)}</span>')
