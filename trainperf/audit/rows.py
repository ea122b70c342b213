"""Which calls are the same?  Calls become one row per operator, shapes, module, line and part."""

from collections.abc import Sequence
from itertools import compress

from trainperf.audit.cache import memory_traffic
from trainperf.audit.calls import Call
from trainperf.audit.fusion import survives
from trainperf.documents.audit import OperatorUse, Place


def rows_of(calls: Sequence[Call], device: str, cache_bytes: int | None) -> tuple[OperatorUse, ...]:
    """The rows of a step, in the order of their first call."""
    own = [call for call in calls if place_of(call, device) == "device"]
    memory = memory_traffic(own, cache_bytes)
    kept = survives(own)
    moved = {
        id(call): (sum(traffic), sum(compress(traffic, standing)))
        for call, traffic, standing in zip(own, memory, kept, strict=True)
    }
    alike: dict[tuple[object, ...], list[Call]] = {}
    for call in calls:
        same = (call.name, call.part, call.site, call.shapes, call.dtypes, place_of(call, device))
        alike.setdefault(same, []).append(call)
    return tuple(
        _row(same, device, [moved.get(id(call), (0, 0)) for call in same])
        for same in alike.values()
    )


def place_of(call: Call, device: str) -> Place:
    """Where it runs; on a CPU everything is the device."""
    if call.devices == {device}:
        return "device"
    return "link" if device in call.devices and len(call.devices) > 1 else "host"


def _row(calls: Sequence[Call], device: str, moved: Sequence[tuple[int, int]]) -> OperatorUse:
    first = calls[0]
    return OperatorUse(
        name=first.name,
        part=first.part,
        kind=first.work.kind,
        place=place_of(first, device),
        module=first.site.module,
        line=first.site.line,
        shapes=first.shapes,
        dtypes=first.dtypes,
        precision=first.precision,
        calls=len(calls),
        flops=sum(call.work.flops for call in calls),
        matmul_flops=sum(call.work.matmul_flops for call in calls),
        repeated_flops=sum(_repeated(call) for call in calls),
        read_bytes=sum(_bytes(call, writes=False) for call in calls),
        written_bytes=sum(_bytes(call, writes=True) for call in calls),
        memory_bytes=sum(memory for memory, _ in moved),
        fused_bytes=sum(fused for _, fused in moved),
        host_s=sum(call.host_ns for call in calls) / 1e9,
    )


def _repeated(call: Call) -> int:
    return call.work.matmul_flops if call.part == "recompute" else call.work.repeated_flops


def _bytes(call: Call, *, writes: bool) -> int:
    return sum(access.size_bytes for access in call.accesses if access.writes == writes)
