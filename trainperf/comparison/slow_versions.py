"""Versions of libraries that were measured to be slow, and the sentence that a comparison adds.

A row needs a measurement of one's own: what was timed, on what, and by how much it was slower than
its neighbour.  Nobody's changelog, and no issue, is enough.  So far nothing was: the table is
empty, and no comparison names a version as slow.  To add a row, give the script and the machine in
`measured`, and the first version that is fast again in `until`.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowVersion:
    """Versions of one library from *since* on, up to but without *until*."""

    library: str
    """As in `RunInfo.software`: `torch`, `cudnn`, `nccl`, `driver`, …"""
    since: str
    until: str | None
    """`None`: no later version was measured."""
    what: str
    """What is slow, and by how much."""
    measured: str
    """Where that was measured: script, hardware, date."""


SLOW_VERSIONS: tuple[SlowVersion, ...] = ()


def slow_versions(
    software: Mapping[str, str], table: Sequence[SlowVersion] = SLOW_VERSIONS
) -> list[str]:
    """What is slow by the table in what a run used, a sentence each."""
    return [
        f"{row.library} {software[row.library]}: {row.what} (measured: {row.measured})"
        for row in table
        if row.library in software and _within(software[row.library], row)
    ]


def _within(version: str, row: SlowVersion) -> bool:
    number = _numbers(version)
    return _numbers(row.since) <= number and (row.until is None or number < _numbers(row.until))


def _numbers(version: str) -> tuple[int, ...]:
    """Of `2.9.0+cu128` those before the `+`."""
    return tuple(int(part) for part in re.findall(r"\d+", version.partition("+")[0]))
