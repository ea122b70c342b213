"""Fusion model: the traffic that fused elementwise chains would not have to move.

A chain is a run of elementwise calls of one part of the step that nothing else interrupts.  As one
kernel it reads each outer value once, and writes only what somebody else reads or what stays.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from trainperf.audit.operator_call import Call


_FUSED = ("pointwise", "copy")

Kept = list[list[bool]]
"""Whether an access remains after fusion, parallel to the calls and their accesses."""


def survives(calls: Sequence[Call]) -> Kept:
    """Which accesses are left when each chain is one kernel."""
    kept = [[True] * len(call.accesses) for call in calls]
    chains = list(_chains(calls))
    for value in _values(calls):
        _drop_repeated_reads(value, chains, kept)
        if value.writer is not None and _stays_inside(value, chains):
            call, place = value.writer
            kept[call][place] = False
    return kept


@dataclass(slots=True, kw_only=True)
class _Value:
    """What a storage held from one write to the next."""

    writer: tuple[int, int] | None
    """Call and access that wrote it; `None` when it is older than the step."""
    temporary: bool = False
    """Whether its storage was allocated by that call."""
    replaced_by: int | None = None
    """Call that overwrote it, if it did."""
    reads: list[tuple[int, int]] = field(default_factory=list)


def _chains(calls: Sequence[Call]) -> Iterator[int | None]:
    """The number of the chain of each call; `None` for one that is not elementwise."""
    chain = 0
    before: Call | None = None
    for call in calls:
        fused = call.work.kind in _FUSED
        if not fused or (before is not None and before.part != call.part):
            chain += 1
        before = call
        yield chain if fused else None


def _values(calls: Sequence[Call]) -> list[_Value]:
    values: list[_Value] = []
    current: dict[int, _Value] = {}
    for index, call in enumerate(calls):
        for place, access in enumerate(call.accesses):
            value = current.get(access.storage)
            if access.writes:
                if value is not None and access.whole:
                    value.replaced_by = index
                value = _Value(writer=(index, place), temporary=access.new)
                values.append(value)
            elif value is None:
                value = _Value(writer=None)
                values.append(value)
            current[access.storage] = value
            if not access.writes:
                value.reads.append((index, place))
    return values


def _drop_repeated_reads(value: _Value, chains: Sequence[int | None], kept: Kept) -> None:
    maker = None if value.writer is None else chains[value.writer[0]]
    read_by = {maker} - {None}
    for call, place in value.reads:
        chain = chains[call]
        if chain is not None and chain in read_by:
            kept[call][place] = False
        elif chain is not None:
            read_by.add(chain)


def _stays_inside(value: _Value, chains: Sequence[int | None]) -> bool:
    """Whether only the chain that wrote it ever reads it."""
    if value.writer is None:
        return False
    chain = chains[value.writer[0]]
    if chain is None or any(chains[call] != chain for call, _ in value.reads):
        return False
    replaced = value.replaced_by is not None and chains[value.replaced_by] == chain
    return replaced or (value.temporary and bool(value.reads))
