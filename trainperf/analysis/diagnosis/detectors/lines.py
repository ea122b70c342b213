"""Lines of code, and operators that a line calls: what several detectors say of a place."""

from collections.abc import Iterable, Iterator

from trainperf.analysis.diagnosis.account import (
    Region,
    total_s,
)
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.summary.schema import LineShare
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.choice import texts_of
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import duration, plural, share
from trainperf.core.groups import grouped, largest


LOOP = 8
"""So many calls from one line in one step are a loop."""

READS = (
    "aten._local_scalar_dense.",
    "aten.is_nonzero.",
    "aten.nonzero.",
    "aten.masked_select.",
    "aten.equal.",
    "aten._unique2.",
    "aten.unique_dim.",
    "aten.unique_consecutive.",
)
"""Operators whose result the host must know before it goes on."""


def place_of(regions: Iterable[Region]) -> tuple[str, str]:
    """`file:line` that weighs most, and the user's line that called it if it is a library's."""
    return largest(
        (
            ((region.use.line, region.use.called_at or ""), region.seconds)
            for region in regions
            if region.use.line is not None
        ),
        default=("", ""),
    )


def lines_of(regions: Iterable[Region], most: int = 2) -> Iterator[str]:
    """The lines that weigh most, each with its time and its operators."""
    groups = grouped(
        (region.use.line or region.use.module or "an unknown place", region) for region in regions
    )
    ranked = sorted(groups.items(), key=lambda item: -total_s(item[1]))
    for place, mine in ranked[:most]:
        names = dict.fromkeys(r.use.short_name for r in sorted(mine, key=lambda r: -r.seconds))
        calls = plural(calls_of(mine), "call")
        listed = ", ".join([*names][:4]) + (", …" if len(names) > 4 else "")
        yield f"{place}: {duration(total_s(mine))} per step in {calls} of {listed}"


def calls_of(regions: Iterable[Region]) -> int:
    """How often operators are called."""
    return sum(region.use.calls for region in regions)


def sampled(line: LineShare | None) -> tuple[str, ...]:
    """The function that most of it was seen in."""
    return texts_of(
        line and f"{line.name}: {share(line.fraction)} of that in {line.samples} samples"
    )


def heaviest(facts: Facts, slot: str) -> tuple[str, ...]:
    """The lines of a pause that take a tenth of it each, where there are several."""
    heavy = [r for r in facts.summary.lines_in(slot).lines if r.fraction >= LIMITS.notable]
    listed = ", ".join(f"{line.where} {share(line.fraction)}" for line in heavy[:3])
    return texts_of(len(heavy) > 1 and listed)


def is_near(first: str, second: str) -> bool:
    """Whether two lines may belong to one piece of code: at most twelve apart in one file."""
    (file, number), (other_file, other_number) = _split(first), _split(second)
    return file == other_file and abs(number - other_number) <= 12


def _split(line: str) -> tuple[str, int]:
    file, _, number = line.rpartition(":")
    return file, int(number) if number.isdecimal() else 0


def is_read(use: OperatorUse) -> bool:
    """Whether it hands a value to Python, in forward and from a known line."""
    placed = use.part == "forward" and bool(use.line) and not use.logs
    return placed and use.name.startswith(READS)
