"""Importer of torchtitan's structured log: one JSON line per event, one file per rank.

Spans have a line where they begin and one where they end, with their milliseconds by a monotonic
clock; every line has the time of day in microseconds.  They were read in torchtitan's sources of
August and September 2026 (`torchtitan/observability`, `torchtitan/trainer.py`).
"""

import math
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

import msgspec
import numpy as np

from trainperf.core.errors import LogError
from trainperf.core.phases import PHASES, Gap, Phase, Tag
from trainperf.importers.base import (
    MS,
    LogEvent,
    LogFormat,
    LoggedColumns,
    LoggedFit,
    LoggedGap,
    LoggedRestart,
    LoggedSteps,
    lines_of,
    phases_ns,
)
from trainperf.importers.torchtitan_blocks import (
    GARBAGE,
    KEY,
    OF_SPAN,
    OF_TOKENS,
    PASS,
    PHASES_OF,
    TIME,
    TOKENS,
    TitanSteps,
    stretches,
)


_NAME = re.compile(rb'.*"log_type_name": ?"([^"]+)"')
_HEAD = 32
"""Bytes behind the key: they hold any name that is read, and no number."""
_HEADS = 4096
"""Kept at most: a log whose lines go on otherwise would have one for each line."""

_PHASES = {
    b"fetching_batch_end": Phase.DATA_WAIT,
    b"optim_end": Phase.OPTIMIZER,
    b"collect_dist_metrics_end": Phase.LOOP,
}
_OPTIMIZER = Phase.OPTIMIZER
"""Here, as looking up a member takes a quarter of a microsecond in Python 3.11."""
_GAPS = {b"eval": Gap.VALIDATION, b"checkpoint_save": Gap.CHECKPOINT}
"""Spans inside of a step that are no part of it."""

NAMES = (
    _PHASES.keys()
    | {name + end for name in (b"step", *_GAPS) for end in (b"_start", b"_end")}
    | {b"fwd_bwd_end", b"gc_collect_end", b"metric_value", b"step_error"}
    | {b"structured_logger_started"}
)
_TOKENS = "local_valid_tokens"
_TOKENS_KEY = f'"{_TOKENS}"'.encode()
_LONG_PAUSE = 0.05
"""Share of a step from which a collection of garbage makes it unlike others."""

# As torchtitan writes its lines: one that is written otherwise is decoded as a whole.
_KEY_BYTES = len(KEY)
_CLOSE = b"}\n"
_LARGEST = 1e15
"""No number of a log is above it; infinity and NaN are not below."""


class _Line(msgspec.Struct):
    """What is read of a line."""

    log_type_name: str
    time_us: int
    rank: int = 0
    value: float = 0.0
    event_name: str | None = None
    message: str = ""
    step_tags: list[str] = []


_DECODER = msgspec.json.Decoder(_Line)


def read(files: Sequence[Path]) -> list[LoggedFit]:
    """One fit for each file: its rank is in it, and files of one rank are attempts in order."""
    begun = sorted((_first(file), place) for place, file in enumerate(files))
    world_size = 1 + max(rank for (_, rank), _ in begun)
    return [_fit(files[place], rank, world_size, time_us) for (time_us, rank), place in begun]


def _first(file: Path) -> tuple[int, int]:
    """Time and rank of a file's first event."""
    for line in lines_of(file):
        if _NAME.match(line) and (event := _decoded(line)):
            return event.time_us, event.rank
    raise LogError(f"{file}: no event of a torchtitan log in it: {FORMAT.marks}")


def _decoded(line: bytes) -> _Line | None:
    """The event of a line; `None` for a line that is cut or damaged."""
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


_Named = tuple[bytes, bytes, int]
"""The name of a line, the line, and where in it the name ends."""


def _named(lines: Iterable[bytes]) -> Iterator[_Named]:
    """The lines that may be read; most others are passed over by their names."""
    names: dict[bytes, bytes] = {}
    for line in lines:
        # Of a line that one cut before it runs into, the last.
        begin = line.rfind(KEY)
        if begin >= 0:
            begin += _KEY_BYTES
        elif (match := _NAME.match(line)) is not None:
            begin = match.start(1)
        else:
            continue
        head = line[begin : begin + _HEAD]
        name = names.get(head)
        if name is None:
            if len(names) > _HEADS:
                names.clear()
            name = head.partition(b'"')[0]
            names[head] = name = name if name in NAMES else b""
        if name:
            yield name, line, begin + len(name)


def _value(named: _Named, key: bytes = OF_SPAN) -> float | None:
    """The value of a line; `None` for a line that is cut or damaged."""
    _, line, end = named
    if line.startswith(key, end) and line.endswith(_CLOSE):
        begin = end + len(key)
        try:
            value = float(line[begin : line.find(b",", begin)])
        except ValueError:
            value = math.inf
        if -_LARGEST < value < _LARGEST:
            return value
    event = _decoded(line)
    return None if event is None else event.value


def _time_us(named: _Named) -> int | None:
    """The time of a line; `None` for a line that is cut or damaged."""
    _, line, end = named
    begin = line.rfind(TIME, 0, end) + len(TIME)
    digits = line[begin : line.find(b",", begin)]
    if digits.isdigit() and line.endswith(_CLOSE):
        return int(digits)
    event = _decoded(line)
    return None if event is None else event.time_us


def _fit(file: Path, rank: int, world_size: int, began_us: int) -> LoggedFit:
    fit = LoggedFit(
        events=iter(()),
        rank=rank,
        world_size=world_size,
        started_at=_started_at(began_us),
    )
    fit.notes["tokens"] = "labels != -100"
    fit.events = _Reader(file, fit, began_us).events()
    return fit


def _started_at(began_us: int) -> str:
    return datetime.fromtimestamp(began_us / 1e6, tz=timezone.utc).isoformat()


class _Reader:
    """One file while it is read."""

    def __init__(self, file: Path, fit: LoggedFit, began_us: int) -> None:
        self._file, self._fit, self._began_us = file, fit, began_us
        self._last_us, self._steps = began_us, 0
        self._clear()

    def events(self) -> Iterator[LogEvent]:
        """The steps and gaps, in order."""
        of_name = self._of_name()
        named = (b"", b"", 0)
        for stretch in stretches(self._file, NAMES):
            if stretch.steps is not None and self._steps:
                yield self._at_once(stretch.steps)
                named = (b"", b"", 0)
                continue
            for named in _named(stretch.lines()):
                name = named[0]
                if name in _PHASES:
                    if not self._inside and (ms := _value(named)) is not None:
                        phase = _PHASES[name]
                        self._spent[phase] = self._spent.get(phase, 0.0) + ms * MS
                else:
                    yield from of_name[name](named)
        last = _decoded(named[1])
        end_us = self._last_us if last is None else max(self._last_us, last.time_us)
        self._fit.end_ns = 1000 * (end_us - self._began_us)

    def _of_name(self) -> dict[bytes, Callable[[_Named], Sequence[LogEvent]]]:
        """What is done with a line of each name but those of phases."""
        return {
            b"step_start": self._step_start,
            b"step_end": self._step_end,
            b"fwd_bwd_end": self._pass_end,
            b"metric_value": self._metric,
            b"step_error": self._error,
            b"structured_logger_started": self._begun,
            **{name + b"_start": self._span_start for name in _GAPS},
            **{name + b"_end": self._span_end for name in (b"gc_collect", *_GAPS)},
        }

    def _clear(self) -> None:
        self._spent: dict[Phase, float] = {}
        self._gaps: list[LoggedGap] = []
        self._gc_ns = 0.0
        self._passes = 0
        self._tokens: float | None = None
        self._inside = b""
        """The gap that is open: what is in it is not the step's."""

    def _step_start(self, named: _Named) -> Sequence[LogEvent]:
        self._clear()
        if self._steps or (time_us := _time_us(named)) is None:
            return ()
        return [LoggedGap(gap=Gap.STARTUP, duration_ns=1000 * (time_us - self._began_us))]

    def _step_end(self, named: _Named) -> Sequence[LogEvent]:
        """The step, and the gaps in it; the data ended in one without an update."""
        ms, time_us = _value(named), _time_us(named)
        if ms is None or time_us is None:
            return ()
        self._last_us = time_us
        events: list[LogEvent] = []
        if _OPTIMIZER in self._spent:
            self._steps += 1
            step = self._step(round(ms * MS), 1000 * (time_us - self._began_us))
            events = [step, *self._gaps]
        self._clear()
        return events

    def _pass_end(self, _: _Named) -> Sequence[LogEvent]:
        if not self._inside:
            self._passes += 1
        return ()

    def _span_start(self, named: _Named) -> Sequence[LogEvent]:
        """A gap begins, or is in another one."""
        self._inside = self._inside or named[0].removesuffix(b"_start")
        return ()

    def _span_end(self, named: _Named) -> Sequence[LogEvent]:
        """A gap is over, or a collection of garbage."""
        base = named[0].removesuffix(b"_end")
        if self._inside in (b"", base):
            self._inside = b""
            if (ms := _value(named)) is None:
                pass
            elif base in _GAPS:
                self._gaps.append(LoggedGap(gap=_GAPS[base], duration_ns=round(ms * MS)))
            else:
                self._gc_ns += ms * MS
        return ()

    def _begun(self, named: _Named) -> Sequence[LogEvent]:
        """A process began to log: behind steps it is another attempt.

        Raises:
            LogError: It is one of another rank, whose spans would be taken for this one's.
        """
        event = _decoded(named[1])
        if event is None:
            return ()
        if event.rank != self._fit.rank:
            raise LogError(
                f"{self._file}: lines of rank {self._fit.rank} and of rank {event.rank}: "
                "give a file for each rank, as torchtitan writes them"
            )
        if not self._steps:
            return ()
        self._began_us = self._last_us = event.time_us
        self._steps = 0
        self._clear()
        return [LoggedRestart(started_at=_started_at(event.time_us))]

    def _error(self, named: _Named) -> Sequence[LogEvent]:
        self._inside = b""
        if (event := _decoded(named[1])) is not None:
            # `[step 7] step_error: ValueError: …`
            self._fit.ended = event.message.partition("step_error: ")[2].partition(":")[0]
        return ()

    def _metric(self, named: _Named) -> Sequence[LogEvent]:
        """A value, which may be the number of tokens."""
        _, line, end = named
        if self._inside or _TOKENS_KEY not in line:
            return ()
        if line.startswith(OF_TOKENS, end):
            tokens = _value(named, OF_TOKENS)
        else:
            event = _decoded(line)
            tokens = event.value if event is not None and event.event_name == _TOKENS else None
        if tokens is not None:
            self._tokens = tokens
        return ()

    def _at_once(self, steps: TitanSteps) -> LoggedColumns:
        """Steps without a gap; what `_step` says of each of them."""
        number = len(steps.whole_ns)
        host_ns = np.zeros((number, len(PHASES)), np.int64)
        for kind, phase in PHASES_OF.items():
            host_ns[:, phase] = np.rint(steps.spent_ns[kind])
            if steps.lines[kind].any():
                self._fit.phases.add(phase)
        host_ns[:, Phase.OTHER] = steps.whole_ns - host_ns.sum(axis=1)
        gc_ns, tokens = steps.spent_ns[GARBAGE], steps.tokens.tolist()
        for place in np.flatnonzero(steps.lines[TOKENS] == 0).tolist():
            tokens[place] = None
        self._steps += number
        self._last_us = int(steps.end_us[-1])
        self._clear()
        return LoggedColumns(
            host_ns=host_ns,
            end_ns=(1000 * (steps.end_us - self._began_us)).tolist(),
            tags=np.where(gc_ns > _LONG_PAUSE * steps.whole_ns, int(Tag.GC), 0).tolist(),
            micro_batches=np.maximum(1, steps.lines[PASS]).tolist(),
            facts={"tokens_effective": tokens, "gc_ns": np.rint(gc_ns).astype(np.int64).tolist()},
        )

    def _step(self, whole_ns: int, end_ns: int) -> LoggedSteps:
        """The step that is over; the gaps in it follow."""
        wall_ns = max(0, whole_ns - sum(gap.duration_ns for gap in self._gaps))
        host_ns, _ = phases_ns(wall_ns, self._spent)
        self._fit.phases.update(self._spent)
        return LoggedSteps(
            host_ns=host_ns,
            # Gaps of a step come at its end.
            end_ns=end_ns - whole_ns + wall_ns,
            tags=int(Tag.GC) if self._gc_ns > _LONG_PAUSE * wall_ns else 0,
            micro_batches=max(1, self._passes),
            facts={"tokens_effective": self._tokens, "gc_ns": round(self._gc_ns)},
        )


FORMAT = LogFormat(
    name="torchtitan",
    title="a torchtitan structured log",
    marks='JSON lines with "log_type_name" and "time_us" (structured_logs/*.jsonl)',
    mark=re.compile(rb'"time_us": ?\d+[^\n]*"log_type_name": ?"'),
    read=read,
    clock="a step is its `step` span on the host's clock, without evaluation and checkpoints",
    holds={
        Phase.DATA_WAIT.label: "span `fetching_batch`",
        Phase.OPTIMIZER.label: "span `optim`, with gradient clipping",
        Phase.LOOP.label: "span `collect_dist_metrics`",
        Gap.STARTUP.label: "from the first event to the first `step_start`",
        Gap.VALIDATION.label: "span `eval`",
        Gap.CHECKPOINT.label: "span `checkpoint_save`",
        "tokens_effective": "value `local_valid_tokens`",
        "gc_ns": "span `gc_collect`",
    },
    lacks={
        Phase.FORWARD.label: "forward and backward are one span, `fwd_bwd`",
        Phase.BACKWARD.label: "forward and backward are one span, `fwd_bwd`",
        Phase.H2D.label: "no span is around the copies",
        Phase.CALLBACKS.label: "torchtitan has no callbacks",
        "loss": "the loss is in the console log and in TensorBoard, not in the structured log",
        "tokens_padded": "padding is not counted",
    },
)
