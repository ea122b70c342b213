"""The ranks of a page: how long each waits where they meet, and who is late."""

from collections.abc import Sequence

from trainperf.analysis.summary.schema import Summary, SyncPoint
from trainperf.core.formatting.html.markup import Markup, bullets, paragraph, table
from trainperf.core.formatting.units import duration, plural
from trainperf.core.readings import ALLREDUCE_TAIL_S
from trainperf.reports.html.components import heading, meter, missing
from trainperf.reports.run.run_view import RunView


MOST_RANKS = 32
"""In a table; of more the first and the last."""

_POINTS = {"backward": "at the all-reduce, in backward", "loop": "before every fetch, in the loop"}


def ranks(summary: Summary, view: RunView) -> Markup:
    """Waits rank by rank; for a single rank why there are none."""
    if len(summary.run.ranks) < 2 and summary.run.world_size < 2:
        return paragraph("One rank: no waiting for other ranks.", "soft")
    points = "".join(_point(summary, point) for point in summary.synchronisation)
    nothing = "" if points else missing([("All-reduce tail", _why(summary))])
    rows = [(str(row.rank), *row.cells) for row in view.rank_rows]
    return Markup(
        bullets(view.late)
        + points
        + nothing
        + heading("A steady step, rank by rank")
        + table(("rank", *view.rank_columns), _some(rows))
    )


def _why(summary: Summary) -> str:
    reading = summary.readings[ALLREDUCE_TAIL_S]
    return reading.reason or "not measured in this run"


def _point(summary: Summary, point: SyncPoint) -> str:
    """What each rank waits: the part that even the last one does, and the rest."""
    longest = max(point.wait_s)
    if longest <= 0:
        return ""
    rows = []
    for rank, wait in zip(summary.run.ranks, point.wait_s, strict=True):
        skew = wait - point.transfer_s
        bars = meter(point.transfer_s / longest, "b7") + meter(skew / longest * 0.98, "b1")
        rows.append((str(rank), Markup(bars), duration(wait), duration(skew)))
    caption = (
        f"Mean over {plural(point.n, 'steady step')}. Grey: the transfer, "
        f"{duration(point.transfer_s)}, which every rank waits for. Orange: the skew, the wait for "
        f"the last rank; the first to arrive loses {duration(point.lost_s)} per step on average."
    )
    return (
        heading(f"Wait {_POINTS.get(point.point, f'at {point.point}')}")
        + table(("rank", "\u00a0", "wait", "skew"), _some(rows), words=(0, 1))
        + paragraph(caption, "soft small")
    )


def _some(
    rows: Sequence[tuple[str | Markup, ...]],
) -> Sequence[tuple[str | Markup, ...]]:
    """The first and the last of many ranks."""
    if len(rows) <= MOST_RANKS:
        return rows
    half = MOST_RANKS // 2
    between = (f"… {len(rows) - MOST_RANKS:,} more …", *[""] * (len(rows[0]) - 1))
    return [*rows[:half], between, *rows[-half:]]
