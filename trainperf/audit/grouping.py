"""Rows of an audited step: its calls grouped, and the traffic that a cache or fusion would save.

A row is an operator, its shapes, module, line and part of the step.

The cache model replays the calls against a cache that keeps the most recently used bytes, twice, so
that the second pass starts as a step in the middle of a fit does.  Where hardware keeps less, it
moves more: the result is a lower bound.

The fusion model looks at chains: runs of elementwise calls of one part of the step that nothing
else interrupts.  As one kernel a chain reads each outer value once, and writes only what somebody
else reads or what stays.  Results are parallel to the calls and their accesses.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import compress

from trainperf.audit.operator_call import Call
from trainperf.core.artifacts.audit import OperatorUse, Place


def rows_of(
    calls: Sequence[Call], device: str, cache_bytes: int | None, unheld: Sequence[str] = ()
) -> tuple[OperatorUse, ...]:
    """The rows of a step, in the order of their first call.

    Args:
        calls: In their order.
        device: Type of the one that computed.
        cache_bytes: Of its last cache; `None` where that is not known.
        unheld: Modules with gradients for nothing.
    """
    own = [call for call in calls if place_of(call, device) == "device"]
    memory = memory_traffic(own, cache_bytes)
    moved = {
        id(call): _Moved(
            memory_bytes=sum(traffic),
            fused_bytes=sum(compress(traffic, standing)),
            inner_bytes=sum(_sizes(call)) - sum(compress(_sizes(call), standing)),
        )
        for call, traffic, standing in zip(own, memory, survives(own), strict=True)
    }
    alike: dict[tuple[object, ...], list[Call]] = {}
    for call in calls:
        alike.setdefault((*_kind_of(call), place_of(call, device)), []).append(call)
    return tuple(
        _row(
            same,
            device,
            [moved.get(id(call), _NOTHING) for call in same],
            unheld=next((m for m in unheld if f"{same[0].site.module}.".startswith(f"{m}.")), ""),
        )
        for same in alike.values()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Moved:
    """What becomes of a call's accesses behind a cache, and as part of a fused chain."""

    memory_bytes: int = 0
    fused_bytes: int = 0
    inner_bytes: int = 0


_NOTHING = _Moved()


def _kind_of(call: Call) -> tuple[object, ...]:
    """What calls of one row have in common."""
    like = call.like
    given = (like.shapes, like.dtypes, like.result_dtype, like.channels_last)
    return (like.name, call.part, call.site, call.constant, *given)


def _sizes(call: Call) -> list[int]:
    return [access.size_bytes for access in call.accesses]


def place_of(call: Call, device: str) -> Place:
    """Where it runs; on a CPU everything is the device."""
    if call.like.devices == {device}:
        return "device"
    return "link" if device in call.like.devices and len(call.like.devices) > 1 else "host"


def _row(
    calls: Sequence[Call], device: str, moved: Sequence[_Moved], *, unheld: str
) -> OperatorUse:
    first = calls[0]
    like = first.like
    return OperatorUse(
        name=like.name,
        part=first.part,
        kind=like.work.kind,
        place=place_of(first, device),
        module=first.site.module,
        line=first.site.line,
        called_at=first.site.called_at,
        shapes=like.shapes,
        dtypes=like.dtypes,
        precision=like.precision,
        calls=len(calls),
        flops=sum(call.like.work.flops for call in calls),
        matmul_flops=sum(call.like.work.matmul_flops for call in calls),
        repeated_flops=sum(
            call.like.work.matmul_flops
            if call.part == "recompute"
            else call.like.work.repeated_flops
            for call in calls
        ),
        read_bytes=sum(_bytes(call, writes=False) for call in calls),
        written_bytes=sum(_bytes(call, writes=True) for call in calls),
        memory_bytes=sum(each.memory_bytes for each in moved),
        fused_bytes=sum(each.fused_bytes for each in moved),
        inner_bytes=sum(each.inner_bytes for each in moved),
        constant=first.constant,
        result_dtype=like.result_dtype,
        channels_last=like.channels_last,
        host_s=sum(call.host_ns for call in calls) / 1e9,
        busy_s=sum(call.busy_ns for call in calls) / 1e9,
        before_s=sum(call.before_ns for call in calls) / 1e9,
        logs=first.site.logs,
        unheld=unheld,
    )


def _bytes(call: Call, *, writes: bool) -> int:
    return sum(access.size_bytes for access in call.accesses if access.writes == writes)


Traffic = list[list[int]]
"""Bytes between memory and cache, for each access of each call."""


def memory_traffic(calls: Sequence[Call], cache_bytes: int | None) -> Traffic:
    """What each access moves between memory and a cache; everything when its size is unknown."""
    if not cache_bytes:
        return [[access.size_bytes for access in call.accesses] for call in calls]
    cache = _Cache(cache_bytes)
    _replay(calls, cache)
    return _replay(calls, cache)


def _replay(calls: Sequence[Call], cache: "_Cache") -> Traffic:
    cache.traffic = [[0] * len(call.accesses) for call in calls]
    for index, call in enumerate(calls):
        for place, access in enumerate(call.accesses):
            if access.writes:
                cache.write(access.storage, access.size_bytes, (index, place))
            else:
                cache.traffic[index][place] += cache.read(access.storage, access.size_bytes)
    return cache.traffic


@dataclass(slots=True, kw_only=True)
class _CachedStorage:
    size: int
    dirty: int = 0
    writer: tuple[int, int] = (0, 0)
    """Call and access that the write-back is charged to."""


class _Cache:
    """Least recently used goes first; a write reaches memory when it goes."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: OrderedDict[int, _CachedStorage] = OrderedDict()
        self._used = 0
        self.traffic: Traffic = []
        """Of the present pass: a write-back may belong to a write of the pass before."""

    def read(self, storage: int, size: int) -> int:
        """Bytes of it that were not cached."""
        return max(0, size - self._touch(storage, size))

    def write(self, storage: int, size: int, writer: tuple[int, int]) -> None:
        """Charge what does not fit at once, the rest when it is evicted."""
        self._touch(storage, size)
        entry = self._entries[storage]
        entry.writer = writer
        entry.dirty = max(entry.dirty, min(size, self._capacity))
        self._charge(writer, max(0, size - self._capacity))

    def _touch(self, storage: int, size: int) -> int:
        """Make it the most recent; return how many bytes of it were cached."""
        entry = self._entries.pop(storage, None) or _CachedStorage(size=0)
        before = entry.size
        entry.size = max(before, min(size, self._capacity))
        self._entries[storage] = entry
        self._used += entry.size - before
        while self._used > self._capacity:
            self._evict(self._used - self._capacity)
        return before

    def _evict(self, excess: int) -> None:
        storage, oldest = next(iter(self._entries.items()))
        gone = min(excess, oldest.size)
        lost = max(0, oldest.dirty - (oldest.size - gone))
        self._charge(oldest.writer, lost)
        oldest.size -= gone
        oldest.dirty -= lost
        self._used -= gone
        if not oldest.size:
            del self._entries[storage]

    def _charge(self, writer: tuple[int, int], size: int) -> None:
        call, place = writer
        if size:
            self.traffic[call][place] += size


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
        fused = call.like.work.kind in _FUSED
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
