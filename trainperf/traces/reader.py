"""The reader of trace files: one pass, chunk by chunk, in bounded memory."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from trainperf.core.errors import TraceError
from trainperf.traces.event_table import NONE, EventTable, Losses, TraceInfo
from trainperf.traces.reading.columns import Columns
from trainperf.traces.reading.decode import EventDecoder
from trainperf.traces.reading.meta import KEYS, clock_ns, info_of, values_of
from trainperf.traces.reading.numbers import InexactError
from trainperf.traces.reading.source import ReadLimits, Source
from trainperf.traces.reading.splitter import ByteWindow, TraceDocument, Value


_TIES = ("python_id", "external", "kind")
"""What says which of two events of the same time is the outer one, the last first."""


def read(path: Path, *, limits: ReadLimits | None = None) -> EventTable:
    """Read one trace, `.json` or `.json.gz`; what is damaged is left out and counted in `losses`.

    Raises:
        TraceError: nothing of it can be used; says why in one line.
    """
    limits = limits or ReadLimits()
    try:
        try:
            return _read(path, limits, EventDecoder())
        except InexactError:
            # Found in the first chunk already: the times of one trace count from one zero.
            return _read(path, limits, EventDecoder(exact=True))
    except TraceError as error:
        raise TraceError(f"{path}: {error}") from None


def _read(path: Path, limits: ReadLimits, decoder: EventDecoder) -> EventTable:
    source = Source(path, limits)
    document = TraceDocument(ByteWindow(source.blocks()), decoder)
    columns = Columns(limits.text_characters)
    bodies: dict[str, bytes] = {}
    dropped = repaired = 0
    for part in document.parts():
        if isinstance(part, Value):
            if part.key in KEYS:
                bodies[part.key] = part.body
            continue
        columns.add(part.events)
        if columns.rows > limits.events:
            raise TraceError(
                f"it holds more than {limits.events:,} events; "
                "record fewer steps, or raise the limit"
            )
        dropped += part.dropped
        repaired += part.repaired
    if not columns.rows:
        raise TraceError("it holds no events")
    losses = Losses(
        dropped_events=dropped + columns.dropped,
        truncated=document.truncated,
        repaired_texts=repaired,
        trailing=document.trailing or source.trailing,
    )
    values = values_of(bodies)
    table = _assemble(columns, info=TraceInfo(), losses=losses, clock_ns=clock_ns(values))
    return replace(table, info=info_of(values, table))


def _assemble(columns: Columns, *, info: TraceInfo, losses: Losses, clock_ns: int) -> EventTable:
    """The table of all *columns*, which are used up; *clock_ns* is where their times count from."""
    joint = _Joint(columns)
    start_ns = joint.times("start_ns")
    base_ns = int(start_ns.min())
    start_ns -= base_ns
    first_ns = int(start_ns[0])
    joint.order(start_ns)
    return EventTable(
        start_ns=joint.sorted(start_ns),
        duration_ns=joint.sorted(joint.times("duration_ns")),
        kind=joint.kinds(),
        name=joint.codes("name"),
        thread=joint.codes("thread"),
        correlation=joint.codes("correlation"),
        external=joint.codes("external"),
        stream=joint.codes("stream"),
        device=joint.codes("device"),
        bytes=joint.quantities("bytes"),
        shapes=joint.codes("shapes"),
        collective=joint.codes("collective"),
        group=joint.codes("group"),
        elements=joint.quantities("elements"),
        dtype=joint.codes("dtype"),
        sequence=joint.codes("sequence"),
        python_id=joint.codes("python_id"),
        python_parent=joint.codes("python_parent"),
        total_bytes=joint.quantities("total_bytes"),
        stack=joint.codes("stack") if joint.has("stack") else None,
        names=columns.names.texts(),
        texts=columns.texts.names.texts(),
        threads=list(columns.threads.pairs),
        base_ns=clock_ns + base_ns,
        clock_ns=clock_ns,
        first_ns=first_ns,
        info=info,
        losses=losses,
    )


class _Joint:
    """The columns, each taken out of where it grew when it is asked for."""

    def __init__(self, columns: Columns) -> None:
        self._growing = columns.growing
        self._rows = columns.rows
        self._order: npt.NDArray[np.intp] | None = None

    def has(self, column: str) -> bool:
        """Whether any event fills this column."""
        return column in self._growing

    def times(self, column: str) -> npt.NDArray[np.int64]:
        """A column of times, in the order of the file."""
        return self._take(column, np.dtype(np.int64))

    def kinds(self) -> npt.NDArray[np.uint8]:
        """The column of kinds."""
        return self.sorted(self._take("kind", np.dtype(np.uint8)))

    def codes(self, column: str) -> npt.NDArray[np.int32]:
        """A column of what only tells things apart."""
        return self.sorted(self._take(column, np.dtype(np.int32)))

    def quantities(self, column: str) -> npt.NDArray[np.int64]:
        """A column of bytes or counts."""
        return self.sorted(self._take(column, np.dtype(np.int64)))

    def order(self, start_ns: npt.NDArray[np.int64]) -> None:
        """Find the order by start; where starts are equal, the outer event first.

        It does not depend on the order of the file, unless two events are the same in all.
        """
        order = np.argsort(start_ns, kind="stable")
        ordered = start_ns[order]
        same = np.zeros(len(order) + 1, dtype=np.bool_)
        np.equal(ordered[1:], ordered[:-1], out=same[1:-1])
        tied = np.flatnonzero(same[1:] | same[:-1])
        if len(tied):
            rows = order[tied]
            keys = [self._peek(column)[rows] for column in _TIES]
            outer = np.lexsort((*keys, -self._peek("duration_ns")[rows], start_ns[rows]))
            order[tied] = rows[outer]
        self._order = order

    def sorted(self, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """*values* in the order of the table; one seen many times stays that."""
        return values if self._order is None or 0 in values.strides else values[self._order]

    def _take(self, column: str, dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        if column not in self._growing:
            return np.broadcast_to(dtype.type(NONE), self._rows)
        return self._growing.pop(column).finished(self._rows)

    def _peek(self, column: str) -> npt.NDArray[Any]:
        if column not in self._growing:
            return np.broadcast_to(np.int32(NONE), self._rows)
        return self._growing[column].finished(self._rows)
