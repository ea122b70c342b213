"""How does a trace file become a table?  In one pass, chunk by chunk, in bounded memory."""

from dataclasses import replace
from pathlib import Path

from trainperf.core.errors import TraceError
from trainperf.traces.event_table import EventTable, Losses, TraceInfo
from trainperf.traces.reading.assembly import assemble
from trainperf.traces.reading.columns import Columns
from trainperf.traces.reading.decode import EventDecoder
from trainperf.traces.reading.meta import KEYS, clock_ns, info_of, values_of
from trainperf.traces.reading.numbers import InexactError
from trainperf.traces.reading.source import ReadLimits, Source
from trainperf.traces.reading.splitter import ByteWindow, TraceDocument, Value


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
    table = assemble(columns, info=TraceInfo(), losses=losses, clock_ns=clock_ns(values))
    return replace(table, info=info_of(values, table))
