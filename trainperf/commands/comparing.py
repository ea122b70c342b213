"""What do two runs say beside each other, and does the gate hold?"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from trainperf.commands.entry import Said
from trainperf.comparison.compare import Judge
from trainperf.comparison.member import member
from trainperf.comparison.results import Comparison
from trainperf.errors import RunError
from trainperf.pages.markup import portable
from trainperf.parity import TOLERANCE
from trainperf.reports import compare_json, compare_markdown, compare_text
from trainperf.reports.compare_view import answer
from trainperf.reports.html.compare import Pair, Side
from trainperf.reports.html.compare import render as page
from trainperf.series.walls import WallsFold
from trainperf.stats.bootstrap import ASSUMED_NOISE


_RENDER = {
    "text": compare_text.render,
    "markdown": compare_markdown.render,
    "json": compare_json.render,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The options; `None` is the default."""

    form: str
    tolerance: float | None = None
    noise: float | None = None
    gate: float | None = None
    """A run may be so much slower."""


def compared(sides: Sequence[Sequence[Path]], asked: Asked) -> Said:
    """Compare every side after the first with the first, each given as its repeats.

    Raises:
        RunError: One of them is no run directory, or under a gate two cannot be compared.
    """
    judge = Judge(
        tolerance=TOLERANCE if asked.tolerance is None else asked.tolerance,
        noise=ASSUMED_NOISE if asked.noise is None else asked.noise,
    )
    read = [_read(side) for side in sides]
    before = read[0]
    found = tuple(judge.compare(before.members, side.members) for side in read[1:])
    if asked.form == "html":
        text = portable(
            page(
                [
                    Pair(comparison=one, before=before, after=side)
                    for one, side in zip(found, read[1:], strict=True)
                ]
            )
        )
    else:
        text = _RENDER[asked.form](found)
    if asked.gate is None:
        return Said(text=text, code=0)
    failed = [why for one in found if (why := _regression(one, asked.gate))]
    if asked.form in ("json", "html"):  # which stays what it is
        return Said(text=text, code=1 if failed else 0)
    said = "".join(f"\nregression: {why}\n" for why in failed)
    return Said(text=text + said, code=1 if failed else 0)


def _read(paths: Sequence[Path]) -> Side:
    """The repeats of one run."""
    walls = [WallsFold() for _ in paths]
    members = [member(path, beside=[seen]) for path, seen in zip(paths, walls, strict=True)]
    return Side(members=members, walls=walls)


def _regression(comparison: Comparison, limit: float) -> str:
    """Why the gate fails, in one line; empty if it does not.

    The whole interval must be beyond the limit: noise does not fail a build.
    """
    speedup = comparison.speedup
    if speedup is None:
        raise RunError(answer(comparison))
    if comparison.verdict == "loss differs":
        return answer(comparison)
    slower = 1 / speedup.high - 1
    if slower <= limit:
        return ""
    return f"{answer(comparison)} More than {limit:.3g} slower for sure."
