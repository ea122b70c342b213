"""The slices of a trace in a window of time, no more than can be seen."""

from dataclasses import dataclass

import msgspec

from trainperf.core.formatting.escape import plain
from trainperf.core.formatting.units import duration
from trainperf.traces.results import RankTrace, Slice, TraceLane


MOST_SLICES = 400
"""In one lane: a slice or so for three pixels."""

MOST_LANES = 24
"""More do not fit on a page; the first are the ones the analysis found most worth it."""


class LanePicture(msgspec.Struct, frozen=True, kw_only=True):
    """One lane; the lists have one length."""

    name: str
    start_s: list[float]
    end_s: list[float]
    share: list[float]
    """Of each slice's time: less than 1 where short ones were joined and there is room between."""
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


@dataclass(slots=True)
class _Block:
    """A slice, or neighbours of one kind that are together too short to be told apart."""

    first: Slice
    end_s: float
    covered_s: float
    many: int = 1

    @property
    def long_s(self) -> float:
        return self.end_s - self.first.start_s

    def name(self) -> str:
        if self.many == 1:
            return plain(self.first.name)
        return f"{self.many} × {plain(self.first.kind)}, together {duration(self.covered_s)}"

    def take(self, piece: Slice) -> None:
        self.many += 1
        # What overlaps or nests is not covered twice.
        begin_s = max(piece.start_s, self.end_s)
        self.covered_s += max(0.0, piece.end_s - begin_s)
        self.end_s = max(self.end_s, piece.end_s)


def _lane(lane: TraceLane, first_s: float, last_s: float) -> LanePicture:
    inside = [piece for piece in lane.slices if piece.end_s >= first_s and piece.start_s <= last_s]
    blocks = _joined(inside, (last_s - first_s) / MOST_SLICES)
    return LanePicture(
        name=plain(lane.name),
        start_s=[block.first.start_s for block in blocks],
        end_s=[block.end_s for block in blocks],
        share=[block.covered_s / block.long_s if block.long_s > 0 else 1.0 for block in blocks],
        names=[block.name() for block in blocks],
        kinds=[plain(block.first.kind) for block in blocks],
    )


def _joined(slices: list[Slice], least_s: float) -> list[_Block]:
    """Short slices are joined until they are long enough to be seen; long ones stay alone."""
    out: list[_Block] = []
    for piece in sorted(slices, key=lambda piece: piece.start_s):
        last = out[-1] if out and len(slices) > MOST_SLICES else None
        if last is not None and _fits(last, piece, least_s):
            last.take(piece)
        else:
            out.append(_Block(piece, piece.end_s, piece.end_s - piece.start_s))
    return out


def _fits(block: _Block, piece: Slice, least_s: float) -> bool:
    return (
        piece.kind == block.first.kind
        and block.long_s < least_s
        and max(block.end_s, piece.end_s) - block.first.start_s < 2 * least_s
    )
