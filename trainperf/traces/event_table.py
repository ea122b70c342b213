"""The events of a trace as columns; nothing is interpreted yet.

A row is a complete event (`"ph": "X"`), or an instant memory event.  Rows are in order of start.
Times are whole nanoseconds from the first event, not rounded; a name, a thread or a text is an
index into a list, because a trace says the same few thousand things a million times.

Quantities (times, bytes, elements) have 64 bits, so that arithmetic on them is safe.  What only
tells things apart (codes, correlations, streams, ids) has 32; larger ones of the file are folded,
equal ones stay equal.  A column that no event fills is one `NONE` seen many times: read-only.
"""

from dataclasses import dataclass, field
from enum import IntEnum

import numpy as np
import numpy.typing as npt

from trainperf.core.arrays import Integers


Codes = npt.NDArray[np.int32]
Identities = npt.NDArray[np.int32]
Ratios = npt.NDArray[np.float16]

NONE = -1
"""Stands for a missing number or text in every column."""


class Kind(IntEnum):
    """What an event is, whatever the profiler of its time called it."""

    OTHER = 0
    CPU_OP = 1
    ANNOTATION = 2
    """A range on the host: `ProfilerStep#3`, `enumerate(DataLoader)#…`, `nccl:all_reduce`."""
    RUNTIME = 3
    """A call of the device's runtime or driver, launches among them."""
    KERNEL = 4
    MEMCPY = 5
    MEMSET = 6
    DEVICE_ANNOTATION = 7
    """The device's copy of an annotation: never work of its own."""
    DEVICE_SYNC = 8
    """The device's record of somebody waiting for it: never work."""
    PYTHON = 9
    """A Python function, of a trace with stacks."""
    MEMORY = 10
    """An allocation or a release; an instant."""
    OVERHEAD = 11
    """The profiler's own."""


DEVICE_WORK = (Kind.KERNEL, Kind.MEMCPY, Kind.MEMSET)
"""What keeps a device busy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceInfo:
    """What a trace says about itself; `None` where it does not."""

    rank: int | None = None
    world_size: int | None = None
    device: str | None = None
    """Name of the device that worked, e.g. `NVIDIA A100-SXM4-40GB`."""
    process_groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Name of a process group to its ranks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Losses:
    """What could not be read: said in every report, never hidden."""

    dropped_events: int = 0
    """Damaged events that were left out."""
    truncated: bool = False
    """Whether the file ends before its events do."""
    repaired_texts: int = 0
    """Events whose text was no valid JSON string and was repaired."""
    trailing: bool = False
    """Whether something stands behind the end of the trace, e.g. another trace: not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventTable:
    """The events of one trace; all columns have one length and the order of `start_ns`.

    Ties keep the longer event first, so that a parent stands before its children.
    """

    start_ns: Integers
    """From `base_ns`."""
    duration_ns: Integers
    """At least 0; 0 for instants."""
    kind: npt.NDArray[np.uint8]
    """Values of `Kind`."""
    name: Codes
    """Index in `names`."""
    thread: Codes
    """Index in `threads`."""
    correlation: Identities
    """Joins a launch and its device event; `NONE` where there is none."""
    external: Identities
    """`External id`: joins runtime and device events to the operator above them.

    A `NONE` also where the file says 0, which profilers write for *none*; as in `correlation`.
    """
    stream: Identities
    """The device's stream; `NONE` for host events."""
    device: Identities
    """The device's number; `NONE` for host events."""
    bytes: Integers
    """Bytes a copy moved, or a memory event's (negative: released); `NONE` if not given."""
    shapes: Codes
    """`Input Dims` as text: index in `texts`."""
    collective: Codes
    """`Collective name` of a communication event: index in `texts`."""
    group: Codes
    """`Process Group Name` of a communication event: index in `texts`."""
    elements: Integers
    """`In msg nelems` of a communication event."""
    dtype: Codes
    """`dtype` of a communication event: index in `texts`."""
    sequence: Identities
    """`Sequence number`: joins a backward operator to its forward one; `NONE` if not given."""
    python_id: Identities
    """`Python id` of a `PYTHON` event."""
    python_parent: Identities
    """`Python parent id` of a `PYTHON` event."""
    total_bytes: Integers
    """`Total Allocated` after a memory event; `NONE` elsewhere."""
    reserved_bytes: Integers
    """`Total Reserved` after a memory event; `NONE` elsewhere."""
    blocks_per_sm: Ratios
    """`blocks per SM` of a kernel, to three digits; `NONE` where not given."""
    occupancy_percent: Ratios
    """`est. achieved occupancy %` of a kernel; `NONE` where not given."""
    stack: Codes | None = None
    """`Call stack` of an operator of 2021, innermost first, `;` between: index in `texts`.

    `None` where the reader found none; traces since then have `PYTHON` events instead.
    """
    names: list[str]
    texts: list[str]
    threads: list[tuple[str, str]]
    """`(pid, tid)` as text: numbers on the host, `stream 7` and the like on some devices."""
    base_ns: int = 0
    """Clock of the profiler at `start_ns == 0`: aligns the ranks of one host."""
    info: TraceInfo = field(default_factory=TraceInfo)
    losses: Losses = field(default_factory=Losses)

    def __len__(self) -> int:
        return len(self.start_ns)

    @property
    def end_ns(self) -> Integers:
        """When each event ended, from `base_ns`."""
        return self.start_ns + self.duration_ns

    def rows(self, *kinds: Kind) -> npt.NDArray[np.intp]:
        """Rows of these kinds, in order."""
        return np.flatnonzero(np.isin(self.kind, kinds))

    def label(self, row: int) -> str:
        """The name of a row's event."""
        return self.names[int(self.name[row])]
