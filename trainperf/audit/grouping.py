"""Grouping of calls: one row per operator, shapes, module, line and part of the step."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

from trainperf.audit.cache_model import memory_traffic
from trainperf.audit.fusion import survives
from trainperf.audit.operator_call import Call
from trainperf.core.artifacts.audit import OperatorUse, Place


def rows_of(calls: Sequence[Call], device: str, cache_bytes: int | None) -> tuple[OperatorUse, ...]:
    """The rows of a step, in the order of their first call."""
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
        _row(same, device, [moved.get(id(call), _NOTHING) for call in same])
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
    result = (call.result_dtype, call.constant, call.channels_last)
    return (call.name, call.part, call.site, call.shapes, call.dtypes, *result)


def _sizes(call: Call) -> list[int]:
    return [access.size_bytes for access in call.accesses]


def place_of(call: Call, device: str) -> Place:
    """Where it runs; on a CPU everything is the device."""
    if call.devices == {device}:
        return "device"
    return "link" if device in call.devices and len(call.devices) > 1 else "host"


def _row(calls: Sequence[Call], device: str, moved: Sequence[_Moved]) -> OperatorUse:
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
        repeated_flops=sum(
            call.work.matmul_flops if call.part == "recompute" else call.work.repeated_flops
            for call in calls
        ),
        read_bytes=sum(_bytes(call, writes=False) for call in calls),
        written_bytes=sum(_bytes(call, writes=True) for call in calls),
        memory_bytes=sum(each.memory_bytes for each in moved),
        fused_bytes=sum(each.fused_bytes for each in moved),
        inner_bytes=sum(each.inner_bytes for each in moved),
        constant=first.constant,
        result_dtype=first.result_dtype,
        channels_last=first.channels_last,
        host_s=sum(call.host_ns for call in calls) / 1e9,
        busy_s=sum(call.busy_ns for call in calls) / 1e9,
        before_s=sum(call.before_ns for call in calls) / 1e9,
        logs=first.site.logs,
    )


def _bytes(call: Call, *, writes: bool) -> int:
    return sum(access.size_bytes for access in call.accesses if access.writes == writes)
