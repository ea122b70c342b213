"""What is a small chart?  Lines over groups of steps, and the reason where there are none."""

from collections.abc import Sequence

import msgspec
import numpy as np

from trainperf.analysis.summary.schema import Summary
from trainperf.core.steps.block import Column
from trainperf.reports.series.decimate import Groups, over


_DIGITS = 7
"""Of a number that is drawn: more cannot be seen."""

_FLOATS = msgspec.json.Decoder(list[float])

_UNSAID = "not measured in these steps"

Numbers = list[float | None]


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a chart, a value per group of steps."""

    key: str
    label: str
    values: Numbers
    low: Numbers | None = None
    """Smallest value of a single step in the group; `None` where only the value counts."""
    high: Numbers | None = None
    second: bool = False
    """Whether it belongs to the axis on the right."""


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """A small chart; its groups of steps are those of the step-time breakdown."""

    key: str
    title: str
    what: str
    """What is drawn, in one sentence."""
    unit: str
    """`s`, `B`, `1/s`, `1` (a share of one) or empty (a plain number)."""
    lines: list[Line]
    absent: str | None = None
    """Why there is nothing to draw: it does not apply, or it was not measured."""
    note: str = ""
    """What must be known beside it."""


def listed(values: Column) -> Numbers:
    """Numbers for a browser, `None` for those that are missing."""
    there = np.isfinite(values)
    known = values[there].tolist()
    # All in one text and back: a hundred lines of a thousand numbers are most of an answer's time.
    text = ",".join([f"%.{_DIGITS}g"] * len(known)) % tuple(known)
    rounded = iter(_FLOATS.decode(f"[{text}]"))
    return [next(rounded) if here else None for here in there.tolist()]


def filled(lines: Sequence[Line | None], empty: Chart) -> Chart:
    """*empty* with its lines, and then without the reason for having none."""
    there = [line for line in lines if line is not None]
    if not there:
        return msgspec.structs.replace(empty, note="")
    return msgspec.structs.replace(empty, lines=there, absent=None)


def drawn(
    groups: Groups, name: str, label: str, *, spread: bool = True, second: bool = False
) -> Line | None:
    """A column as a line of means, with the extremes of single steps if it has a *spread*."""
    span = groups.span(name)
    if span is None:
        return None
    return Line(
        key=name,
        label=label,
        values=listed(span.mean()),
        low=listed(span.low) if spread else None,
        high=listed(span.high) if spread else None,
        second=second,
    )


def shares(groups: Groups, names: tuple[str, str, str], label: str) -> Line | None:
    """A quotient of sums, with the extremes of single steps."""
    part, whole, single = (groups.span(name) for name in names)
    if part is None or whole is None or single is None:
        return None
    return Line(
        key=names[0],
        label=label,
        values=listed(over(part.sum, whole.sum)),
        low=listed(single.low),
        high=listed(single.high),
    )


def why(summary: Summary, name: str) -> str:
    """Why a reading has no value."""
    reading = summary.reading(name)
    return (reading.reason if reading else None) or _UNSAID
