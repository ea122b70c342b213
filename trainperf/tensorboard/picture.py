"""What is drawn of a trace in a window of time?  Slices of each lane, no more than can be seen."""

import math

import msgspec

from trainperf.reports.safe import plain
from trainperf.traces.results import Lane, RankTrace, Slice


MOST_SLICES = 400
"""In one lane: a slice or so for three pixels."""

MOST_LANES = 24
"""More do not fit on a page; the first are the ones the analysis found most worth it."""


class LanePicture(msgspec.Struct, frozen=True, kw_only=True):
    """One lane; the lists have one length."""

    name: str
    start_s: list[float]
    end_s: list[float]
    names: list[str]
    kinds: list[str]


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """The lanes of one rank between two moments, in seconds as the analysis counts them."""

    first_s: float
    last_s: float
    """Ends of the whole trace."""
    lanes: list[LanePicture]
    note: str = ""
    """What was left out."""


def picture(rank: RankTrace, first_s: float | None, last_s: float | None) -> Picture:
    """What is to be drawn of a rank from *first_s* to *last_s*; of all of it by default."""
    slices = [piece for lane in rank.lanes for piece in lane.slices]
    whole = (
        min((piece.start_s for piece in slices), default=0.0),
        max((piece.end_s for piece in slices), default=0.0),
    )
    window = (whole[0] if first_s is None else first_s, whole[1] if last_s is None else last_s)
    left_out = len(rank.lanes) - MOST_LANES
    return Picture(
        first_s=whole[0],
        last_s=whole[1],
        lanes=[_lane(lane, *window) for lane in rank.lanes[:MOST_LANES]],
        note=f"{left_out} more lanes are in the trace itself" if left_out > 0 else "",
    )


def _lane(lane: Lane, first_s: float, last_s: float) -> LanePicture:
    inside = [piece for piece in lane.slices if piece.end_s >= first_s and piece.start_s <= last_s]
    shown = _joined(inside, (last_s - first_s) / MOST_SLICES)
    return LanePicture(
        name=plain(lane.name),
        start_s=[piece.start_s for piece in shown],
        end_s=[piece.end_s for piece in shown],
        names=[plain(piece.name) for piece in shown],
        kinds=[plain(piece.kind) for piece in shown],
    )


def _joined(slices: list[Slice], least_s: float) -> list[Slice]:
    """Slices too short to be seen are joined with neighbours of their kind, and counted."""
    if len(slices) <= MOST_SLICES or not math.isfinite(least_s):
        return slices
    out: list[Slice] = []
    many = 0
    for piece in sorted(slices, key=lambda piece: piece.start_s):
        last = out[-1] if out else None
        short = piece.end_s - piece.start_s < least_s
        near = last is not None and piece.start_s - last.end_s < least_s
        if last is not None and short and near and last.kind == piece.kind and many:
            many += 1
            end_s = max(last.end_s, piece.end_s)
            name = f"{many} × {piece.kind}"
            out[-1] = msgspec.structs.replace(last, end_s=end_s, name=name)
            continue
        out.append(piece)
        many = 1 if short else 0
    return out
