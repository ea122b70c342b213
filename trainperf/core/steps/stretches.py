"""Stretches: what is known of every 1,024 steps without reading them.

One row per stretch: where its steps are, sums over all of them, and the ordinary step of it.
Sums are exact; whether a step is steady is told by the rank's own tags.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from trainperf.core.phases import DISQUALIFYING, PHASES, TAGS
from trainperf.core.steps.block import Column, StepBlock


STRETCH = 1024
"""Steps; a stretch begins at a multiple of it, on every rank."""

_PLACE = ("first", "last", "steps", "steady", "start_ns", "end_ns", "offset", "bytes")
_EXCLUDED = tuple(f"tag:{tag.label}" for tag in TAGS if tag & DISQUALIFYING)
_SLOTS = tuple(phase.label for phase in PHASES)


def names(facts: Sequence[str]) -> tuple[str, ...]:
    """The columns of stretches, by the facts of their run."""
    return (
        *_PLACE,
        *_EXCLUDED,
        *(f"sum:{slot}" for slot in _SLOTS),
        *(f"mean:{slot}" for slot in _SLOTS),
        *(f"median:{slot}" for slot in ("wall", *_SLOTS)),
        *(f"{kind}:{fact}" for fact in facts for kind in ("sum", "mean", "most")),
    )


@dataclass(frozen=True)
class Stretches:
    """Some stretches of one rank, in order.

    `sum:X` and `most:X` are over all steps that have it, `mean:X` and `median:X` over the steady
    ones, NaN where there is none; times of phases are nanoseconds.
    """

    facts: tuple[str, ...]
    matrix: Column

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: place for place, name in enumerate(names(self.facts))}

    def __len__(self) -> int:
        return len(self.matrix)

    def __getitem__(self, name: str) -> Column:
        return self.matrix[:, self._places[name]]

    def has(self, name: str) -> bool:
        """Whether there is such a column."""
        return name in self._places

    def select(self, chosen: npt.NDArray[np.bool_]) -> "Stretches":
        """Those for which *chosen* is true."""
        return Stretches(self.facts, self.matrix[chosen])

    def renumbered(self, by: int) -> "Stretches":
        """The same with *by* added to the numbers of their steps."""
        matrix = self.matrix.copy()
        matrix[:, :2] += by
        return Stretches(self.facts, matrix)

    @classmethod
    def joined(cls, parts: "Sequence[Stretches]") -> "Stretches | None":
        """Those of several, in order; of the facts of the last; `None` of nothing."""
        if not parts:
            return None
        facts = parts[-1].facts
        alike = [part.matrix for part in parts if part.facts == facts]
        matrix = np.concatenate(alike)
        return cls(facts, matrix[np.argsort(matrix[:, 0], kind="stable")])

    @classmethod
    def of(cls, blocks: Iterable[StepBlock]) -> "Stretches | None":
        """One per block."""
        rows: list[list[float]] = []
        facts: tuple[str, ...] = ()
        for block in blocks:
            facts = block.schema.columns
            rows.append(_row(block))
        return cls(facts, np.array(rows)) if rows else None


def cut(block: StepBlock) -> list[StepBlock]:
    """A block in pieces that are each of one stretch."""
    number = block.index // STRETCH
    edges = [0, *(np.flatnonzero(np.diff(number)) + 1).tolist(), len(block)]
    return [block.take(np.arange(begin, end)) for begin, end in pairwise(edges)]


def excluded(tags: npt.NDArray[np.int64]) -> dict[str, int]:
    """Tag to the steps excluded from steady statistics for it, the first of several."""
    counts: dict[str, int] = {}
    remaining = tags & DISQUALIFYING
    for tag in TAGS:
        tagged = (remaining & tag) != 0
        if tagged.any():
            counts[tag.label] = int(tagged.sum())
            remaining = np.where(tagged, 0, remaining)
    return counts


def _row(block: StepBlock) -> list[float]:
    steady, without = block.steady(), excluded(block.tags)
    core = block.core()[:, -len(PHASES) :]
    ordinary = steady.core()[:, -len(PHASES) :]
    ends_ns = block.start_ns + block.wall_ns
    row = [block.index[0], block.index[-1], len(block), len(steady)]
    row += [block.start_ns[0], ends_ns.max(), 0.0, 0.0]
    row += [without.get(name.removeprefix("tag:"), 0) for name in _EXCLUDED]
    row += core.sum(axis=0).tolist()
    if len(steady):
        row += ordinary.mean(axis=0).tolist()
        row += [np.median(steady.wall_ns), *np.median(ordinary, axis=0).tolist()]
    else:
        row += [np.nan] * (2 * len(PHASES) + 1)
    for fact in block.schema.columns:
        row += [_over(block, fact, np.nansum), _over(steady, fact, np.nanmean)]
        row.append(_over(block, fact, np.nanmax))
    return [float(value) for value in row]


def _over(block: StepBlock, fact: str, how: object) -> float:
    values = block.fact(fact) if len(block) else None
    return float("nan") if values is None else float(how(values))  # type: ignore[operator]
