"""Which collective launched which kernel?  By the call that launched it, on the same thread."""

from array import array
from bisect import bisect_right
from collections.abc import Mapping

from trainperf.traces.event_table import Kind
from trainperf.traces.reading.kinds import kind_of


_KERNELS = ("nccl", "rccl", "msccl")
"""How the names of kernels of communication begin, whatever their case."""

_MOST = 2**63

Event = Mapping[str, object]
"""One event as the file has it."""


class CollectiveLaunches:
    """Collects events in any order; after `link` knows the `External id` of each collective.

    Holds three numbers per launch: a trace of a gigabyte has some millions.
    """

    def __init__(self) -> None:
        self._threads: dict[tuple[str, str], int] = {}
        self._spans: dict[int, list[tuple[float, float, int]]] = {}
        self._kernels: set[object] = set()
        self._correlations = array("q")
        self._callers = array("i")
        self._times = array("d")
        self._external: dict[int, int] = {}

    def look(self, event: Event) -> None:
        """Take the next event."""
        args, category, name = event.get("args"), event.get("cat"), event.get("name")
        if event.get("ph") != "X" or not isinstance(args, dict) or not isinstance(category, str):
            return
        kind = kind_of(category)
        if kind is Kind.RUNTIME:
            self._call(event, args.get("correlation"))
        elif kind is Kind.KERNEL and is_communication(str(name)):
            self._kernels.add(args.get("correlation"))
        elif kind in (Kind.ANNOTATION, Kind.CPU_OP) and str(name).startswith("nccl:"):
            self._span(event, args.get("External id", args.get("external id")))

    def link(self) -> None:
        """All events have been seen: find the collective around each launch."""
        for spans in self._spans.values():
            spans.sort(key=lambda span: span[0])
        starts = {thread: [span[0] for span in spans] for thread, spans in self._spans.items()}
        for correlation, thread, time in zip(
            self._correlations, self._callers, self._times, strict=True
        ):
            if correlation not in self._kernels or thread not in starts:
                continue
            place = bisect_right(starts[thread], time) - 1
            # The innermost one began last; one that has ended may lie inside one that goes on.
            while place >= 0 and self._spans[thread][place][1] < time:
                place -= 1
            if place >= 0:
                self._external[correlation] = self._spans[thread][place][2]

    def external(self, correlation: object, name: object, kind: Kind) -> int | None:
        """`External id` of the collective behind a kernel or its launch; `None` without one."""
        if kind is Kind.KERNEL and not is_communication(str(name)):
            return None
        return self._external.get(correlation) if isinstance(correlation, int) else None

    def _call(self, event: Event, correlation: object) -> None:
        ts = event.get("ts")
        if isinstance(correlation, int) and 0 < correlation < _MOST and isinstance(ts, int | float):
            self._correlations.append(correlation)
            self._callers.append(self._thread(event))
            self._times.append(ts)

    def _span(self, event: Event, external: object) -> None:
        ts, dur = event.get("ts"), event.get("dur")
        if not isinstance(ts, int | float) or not isinstance(dur, int | float):
            return
        if isinstance(external, int):
            self._spans.setdefault(self._thread(event), []).append((ts, ts + dur, external))

    def _thread(self, event: Event) -> int:
        thread = (str(event.get("pid")), str(event.get("tid")))
        return self._threads.setdefault(thread, len(self._threads))


def is_communication(name: str) -> bool:
    """Whether a kernel of this name moves data between ranks."""
    return name.lower().startswith(_KERNELS)
