"""Cache model: the least traffic that must reach memory behind a cache of a given size.

The calls are replayed against a cache that keeps the most recently used bytes, twice, so that the
second pass starts as a step in the middle of a fit does.  Where hardware keeps less, it moves
more: the result is a lower bound.  Results are parallel to the calls and their accesses.
"""

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass

from trainperf.audit.operator_call import Call


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
