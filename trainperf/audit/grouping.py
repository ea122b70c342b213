"""Rows of an audited step: its calls grouped, and the traffic that a cache or fusion would save.

A row is an operator, its shapes, module, line and part of the step.

The cache model replays the calls against a cache that keeps the most recently used bytes, twice, so
that the second pass starts as a step in the middle of a fit does.  Where hardware keeps less, it
moves more: the result is a lower bound.

The fusion model looks at chains: runs of elementwise calls of one part of the step that nothing
else interrupts.  As one kernel a chain reads each outer value once, and writes only what somebody
else reads or what stays.  Results are parallel to the calls and their accesses.
"""

from collections import Counter, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress

import msgspec

from trainperf.audit.data_flow import dead_ends, loops_in
from trainperf.audit.gradients import NeedlessGradients
from trainperf.audit.operator_call import Call, Site
from trainperf.core.artifacts.audit import OperatorUse, Place
from trainperf.core.groups import grouped


def rows_of(
    calls: Sequence[Call],
    device: str,
    cache_bytes: int | None,
    needless: NeedlessGradients,
    times: float = 1.0,
) -> Iterator[OperatorUse]:
    """The rows of a step, in the order of their first call.

    Args:
        calls: In their order.
        device: Type of the one that computed.
        cache_bytes: Of its last cache; `None` where that is not known.
        needless: Gradients that no update reads.
        times: How many times as many batches the step has as these; its update is the same.
    """
    own = [call for call in calls if place_of(call, device) == "device"]
    moved: dict[int, _Moved] = {}
    for call, traffic, standing in zip(
        own, memory_traffic(own, cache_bytes), survives(own), strict=True
    ):
        sizes = [access.size_bytes for access in call.accesses]
        fused, outer = sum(compress(traffic, standing)), sum(compress(sizes, standing))
        moved[id(call)] = sum(traffic), fused, sum(sizes) - outer
    dead = dead_ends(calls, needless.unheld, needless.reads)
    dropped = dead_ends(calls, needless.dropped, needless.reads)
    loops = loops_in(calls)
    in_torch = grouped(
        (call.site, call.passes[call.site.module or ""])
        for call in calls
        if call.site.in_torch and call.part == "forward"
    )

    def row_of(call: Call) -> tuple[object, ...]:
        """What calls of the same row have in common."""
        like, place = call.like, place_of(call, device)
        given = (like.name, like.shapes, like.dtypes, like.result_dtype)
        flow = (call.constant, id(call) in dead, dropped.get(id(call)), loops.repeated(call))
        return call.part, call.site, place, *given, *flow

    for same in grouped((row_of(call), call) for call in calls).values():
        first, repeated = same[0], loops.repeated(same[0])
        more = 1.0 if first.part == "optimizer" else times
        yield msgspec.structs.replace(
            _row(same, device, [moved.get(id(call), (0, 0, 0)) for call in same], more),
            unheld=_unheld(first, needless.paths, dead=id(first) in dead),
            dropped=dropped.get(id(first), ""),
            siblings=loops.container(first),
            repeated=repeated,
            passes=max(1, round(loops.numbers.get(f"{repeated}()", 0) * more)),
            in_call=max(1, len(same) // _entries(same, in_torch)),
        )


def _entries(calls: Sequence[Call], in_torch: Mapping[Site, Sequence[int]]) -> int:
    """How often a module of torch itself was called that makes them; of others all of them."""
    first = calls[0]
    if not first.site.in_torch:
        return len(calls)
    own = {call.passes.get(first.site.module or "") for call in calls if call.part == "forward"}
    return len(own or {*in_torch.get(first.site, (0,))})


def _unheld(call: Call, paths: Sequence[str], *, dead: bool) -> str:
    """Module with gradients for nothing that a call is of, or hands them to; else the line."""
    within = f"{call.site.module}."
    path = next((path for path in paths if within.startswith(f"{path}.")), "")
    if call.part != "backward":
        return path
    return (path or next(iter(paths), call.site.line or "")) if dead else ""


_Moved = tuple[int, int, int]
"""Bytes of a call behind a cache, what a fused chain leaves of them, what it hands on inside."""


def place_of(call: Call, device: str) -> Place:
    """Where it runs; on a CPU everything is the device."""
    if call.like.devices == {device}:
        return "device"
    return "link" if device in call.like.devices and len(call.like.devices) > 1 else "host"


def _row(calls: Sequence[Call], device: str, moved: Sequence[_Moved], times: float) -> OperatorUse:
    first = calls[0]
    like, site = first.like, first.site
    products = [call.like.work for call in calls if call.like.work.kind == "matmul"]
    memory_bytes, fused_bytes, inner_bytes = map(sum, zip(*moved, strict=True))
    accesses = [access for call in calls for access in call.accesses]
    counts = {
        "calls": len(calls),
        "flops": sum(call.like.work.flops for call in calls),
        "matmul_flops": sum(work.flops for work in products),
        "repeated_flops": sum(
            work.flops if first.part == "recompute" else work.repeated_flops for work in products
        ),
        "read_bytes": sum(access.size_bytes for access in accesses if not access.writes),
        "written_bytes": sum(access.size_bytes for access in accesses if access.writes),
        "memory_bytes": memory_bytes,
        "fused_bytes": fused_bytes,
        "inner_bytes": inner_bytes,
        "again": sum(call.again for call in calls),
    }
    return OperatorUse(
        name=like.name,
        part=first.part,
        kind=like.work.kind,
        place=place_of(first, device),
        module=site.module,
        line=site.line,
        called_at=site.called_at,
        shapes=like.shapes,
        dtypes=like.dtypes,
        precision=like.precision,
        constant=first.constant,
        ignored=sum(call.ignored for call in calls) / len(calls),
        result_dtype=like.result_dtype,
        host_s=sum(call.host_ns for call in calls) / 1e9 * times,
        busy_s=sum(call.busy_ns for call in calls) / 1e9 * times,
        before_s=sum(call.before_ns for call in calls) / 1e9 * times,
        logs=site.logs,
        composed=site.composed,
        # These are numbers.
        **{name: round(count * times) for name, count in counts.items()},  # type: ignore[arg-type]
    )


def memory_traffic(calls: Sequence[Call], cache_bytes: int | None) -> list[list[int]]:
    """Bytes that each access of each call moves between memory and a cache.

    In the cache the least recently used goes first, and a write reaches memory when it goes.
    Charged is what of an access was not cached, or of a write does not fit: everything where the
    size of the cache is not known.
    """
    capacity, used = cache_bytes or 0, 0
    cache: OrderedDict[int, int] = OrderedDict()
    """Storage to what is cached of it."""
    written: dict[int, tuple[int, tuple[int, int]]] = {}
    """Storage to what was cached of its last write, and the call and access of that."""
    accesses = [
        ((index, at), access)
        for index, call in enumerate(calls)
        for at, access in enumerate(call.accesses)
    ]
    for _ in range(2):
        # A write-back may belong to a write of the pass before.
        moved: Counter[tuple[int, int]] = Counter()
        for place, access in accesses:
            size, storage = access.size_bytes, access.storage
            fitting, cached = min(size, capacity), cache.pop(storage, 0)
            dirty, writer = written.pop(storage, (0, place))
            moved[writer] += max(0, dirty - cached)
            if access.writes:
                moved[place] += size - fitting
                written[storage] = max(fitting, min(dirty, cached)), place
            else:
                moved[place] += max(0, size - cached)
                written[storage] = min(dirty, cached), writer
            cache[storage] = max(cached, fitting)
            used += cache[storage] - cached
            while used > capacity:
                oldest, held = cache.popitem(last=False)
                left = max(0, held - (used - capacity))
                used -= held - left
                if left:
                    cache[oldest] = left
                    cache.move_to_end(oldest, last=False)
    return [
        [moved[index, at] for at, _ in enumerate(call.accesses)] for index, call in enumerate(calls)
    ]


_FUSED = ("pointwise", "copy")

Kept = list[list[bool]]
"""Whether an access remains after fusion, parallel to the calls and their accesses."""


def survives(calls: Sequence[Call]) -> Kept:
    """Which accesses are left when each chain is one kernel."""
    kept = [[True] * len(call.accesses) for call in calls]
    current: dict[int, _Value] = {}
    for index, (call, chain) in enumerate(zip(calls, _chains(calls), strict=True)):
        for at, access in enumerate(call.accesses):
            value = current.setdefault(access.storage, _Value())
            if access.writes:
                _settle(value, kept, replaced=access.whole and chain == value.chain)
                current[access.storage] = _Value((index, at), chain, access.new)
            else:
                kept[index][at] = chain is None or chain not in (value.chain, *value.read_by)
                value.read_by.add(chain)
    for value in current.values():
        _settle(value, kept, replaced=False)
    return kept


@dataclass(slots=True)
class _Value:
    """What a storage holds from one write to the next."""

    writer: tuple[int, int] = (0, 0)
    """Call and access that wrote it."""
    chain: int | None = None
    """That of the call; `None` where that is no elementwise one, or was before the step."""
    temporary: bool = False
    """Whether its storage was allocated by that call."""
    read_by: set[int | None] = field(default_factory=set)
    """Chains."""


def _chains(calls: Sequence[Call]) -> Iterator[int | None]:
    """The number of the chain of each call; `None` for one that is not elementwise."""
    chain, part = 0, None
    for call in calls:
        fused = call.like.work.kind in _FUSED
        chain += not fused or part != call.part
        part = call.part
        yield chain if fused else None


def _settle(value: _Value, kept: Kept, *, replaced: bool) -> None:
    """Drop the write of what only the chain that wrote it ever reads."""
    inside = value.chain is not None and value.read_by <= {value.chain}
    if inside and (replaced or (value.temporary and value.read_by)):
        call, at = value.writer
        kept[call][at] = False
