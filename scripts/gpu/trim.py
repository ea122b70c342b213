"""Trimming of a trace to as many whole steps as fit a size limit."""

import gzip
import json
from collections.abc import Iterator, Mapping, Sequence


MOST_BYTES = 1_000_000
"""Of the packed trace."""

_UNREAD = frozenset({"python_function"})
"""Categories that no figure of ours stands on: frames of Python only name lines."""

_UNREAD_ARGUMENTS = frozenset({"Call stack", "Input Strides", "Concrete Inputs", "fwdbwd"})

Event = dict[str, object]


def trimmed(trace: Mapping[str, object], most_bytes: int = MOST_BYTES) -> bytes:
    """The trace, packed: without what nothing reads, then with fewer of its steps.

    Raises:
        RuntimeError: One step alone is larger.
    """
    events = list(_lean(trace["traceEvents"]))  # type: ignore[arg-type]
    while True:
        packed = gzip.compress(json.dumps({**trace, "traceEvents": events}).encode(), 9, mtime=0)
        if len(packed) <= most_bytes:
            return packed
        fewer = _without_last_step(events)
        if len(fewer) == len(events):
            raise RuntimeError(
                f"one step packs into {len(packed)} bytes, more than {most_bytes}: trace a "
                "smaller model"
            )
        events = fewer


def _lean(events: Sequence[Event]) -> Iterator[Event]:
    for event in events:
        if event.get("cat") in _UNREAD:
            continue
        arguments = event.get("args")
        if isinstance(arguments, dict):
            kept = {
                name: value for name, value in arguments.items() if name not in _UNREAD_ARGUMENTS
            }
            event = {**event, "args": kept}  # noqa: PLW2901 the trace itself is left as it is
        yield event


def _without_last_step(events: list[Event]) -> list[Event]:
    """What began before the last of several steps, and what the host launched until then."""
    starts = sorted(_number(event, "ts") for event in events if _is_step(event))
    if len(starts) < 2:
        return events
    cut = starts[-1]
    launched = {_correlation(event) for event in events if _is_launch(event, before=cut)} - {None}
    return [
        event
        for event in events
        if event.get("ph") == "M"
        or (_number(event, "ts") < cut and not _on_device(event))
        or (_on_device(event) and _correlation(event) in launched)
    ]


def _is_step(event: Event) -> bool:
    """Marked by the host: the device's line has the same names, at other times."""
    return event.get("cat") == "user_annotation" and str(event["name"]).startswith("ProfilerStep")


def _is_launch(event: Event, *, before: float) -> bool:
    return (
        str(event.get("cat")) in ("cuda_runtime", "cuda_driver") and _number(event, "ts") < before
    )


def _on_device(event: Event) -> bool:
    return event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")


def _correlation(event: Event) -> object:
    arguments = event.get("args")
    return arguments.get("correlation") if isinstance(arguments, dict) else None


def _number(event: Event, name: str) -> float:
    value = event.get(name, 0.0)
    return float(value) if isinstance(value, int | float | str) else 0.0
