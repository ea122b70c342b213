"""Importer of torchtitan's structured log: one JSON line per event, one file per rank.

Spans have a line where they begin and one where they end, with their milliseconds by a monotonic
clock; every line has the time of day in microseconds.  They were read in torchtitan's sources of
August and September 2026 (`torchtitan/observability`, `torchtitan/trainer.py`).
"""

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from trainperf.core.errors import LogError
from trainperf.core.phases import Gap, Phase, Tag
from trainperf.importers.base import (
    MS,
    LogEvent,
    LogFormat,
    LoggedFit,
    LoggedGap,
    LoggedSteps,
    lines_of,
    phases_ns,
)


_NAME = re.compile(rb'"log_type_name": ?"([^"]+)"')
_KEY = b'"log_type_name": "'
_NEAR = 64
"""The key of a line begins at most so many bytes earlier than that of the line before, mostly."""

_PHASES = {
    b"fetching_batch": Phase.DATA_WAIT,
    b"optim": Phase.OPTIMIZER,
    b"collect_dist_metrics": Phase.LOOP,
}
_GAPS = {b"eval": Gap.VALIDATION, b"checkpoint_save": Gap.CHECKPOINT}
"""Spans inside of a step that are no part of it."""

_BEGINS = frozenset(name + b"_start" for name in (b"step", *_GAPS))
_ENDS = frozenset(name + b"_end" for name in (b"step", b"fwd_bwd", b"gc_collect", *_PHASES, *_GAPS))
_READ = _BEGINS | _ENDS | {b"metric_value", b"step_error"}
_TOKENS = "local_valid_tokens"
_TOKENS_KEY = f'"{_TOKENS}"'.encode()
_LONG_PAUSE = 0.05
"""Share of a step from which a collection of garbage makes it unlike others."""


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
        if _NAME.search(line) and (event := _decoded(line)):
            return event.time_us, event.rank
    raise LogError(f"{file}: no event of a torchtitan log in it: {FORMAT.marks}")


def _decoded(line: bytes) -> _Line | None:
    """The event of a line; `None` for a line that is cut or damaged."""
    try:
        return _DECODER.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def _lines_in(file: Path) -> Iterator[tuple[bytes, bytes]]:
    """The lines that may be read, each behind its name; most others are passed over by it."""
    near = 0
    for line in lines_of(file):
        begin = line.find(_KEY, near)
        if begin >= 0:
            near = begin - _NEAR if begin > _NEAR else 0
            begin += len(_KEY)
            name = line[begin : line.find(b'"', begin)]
        elif (match := _NAME.search(line)) is not None:
            name = match[1]
        else:
            continue
        if name in _READ:
            yield name, line


def _fit(file: Path, rank: int, world_size: int, began_us: int) -> LoggedFit:
    fit = LoggedFit(
        events=iter(()),
        rank=rank,
        world_size=world_size,
        started_at=datetime.fromtimestamp(began_us / 1e6, tz=timezone.utc).isoformat(),
    )
    fit.notes["tokens"] = "labels != -100"
    fit.events = _Reader(file, fit, began_us).events()
    return fit


class _Reader:
    """One file while it is read."""

    def __init__(self, file: Path, fit: LoggedFit, began_us: int) -> None:
        self._file, self._fit, self._began_us = file, fit, began_us
        self._spent: dict[Phase, float] = {}
        self._gaps: list[LoggedGap] = []
        self._gc_ns = 0.0
        self._passes = 0
        self._updated = False
        self._tokens: float | None = None
        self._inside = b""
        """The gap that is open: what is in it is not the step's."""

    def events(self) -> Iterator[LogEvent]:
        """The steps and gaps, in order."""
        last_us, steps, line = self._began_us, 0, b""
        for name, line in _lines_in(self._file):
            if name == b"step_end":
                if (event := _decoded(line)) is not None:
                    last_us = event.time_us
                    for done in self._step(event):
                        steps += isinstance(done, LoggedSteps)
                        yield done
            elif name == b"step_start":
                self._clear()
                if not steps and (event := _decoded(line)) is not None:
                    since_ns = 1000 * (event.time_us - self._began_us)
                    yield LoggedGap(gap=Gap.STARTUP, duration_ns=since_ns)
            else:
                self._inner(name, line)
        last = _decoded(line)
        end_us = last_us if last is None else max(last_us, last.time_us)
        self._fit.end_ns = 1000 * (end_us - self._began_us)

    def _clear(self) -> None:
        self._spent, self._gaps, self._gc_ns = {}, [], 0.0
        self._passes, self._updated, self._tokens, self._inside = 0, False, None, b""

    def _inner(self, name: bytes, line: bytes) -> None:
        """Something inside of a step."""
        if name.endswith(b"_start"):
            self._inside = self._inside or name.removesuffix(b"_start")
            return
        base = name.removesuffix(b"_end")
        if self._inside and base not in (self._inside, b"step_error"):
            return
        self._inside = b""
        if base == b"fwd_bwd":
            self._passes += 1
        elif base != b"metric_value" or _TOKENS_KEY in line:
            event = _decoded(line)
            if event is not None:
                self._timed(base, event)

    def _timed(self, base: bytes, event: _Line) -> None:
        """A span that is over, an error, or a number of tokens."""
        if base in _PHASES:
            phase = _PHASES[base]
            self._spent[phase] = self._spent.get(phase, 0.0) + event.value * MS
            self._updated = self._updated or phase is Phase.OPTIMIZER
        elif base in _GAPS:
            self._gaps.append(LoggedGap(gap=_GAPS[base], duration_ns=round(event.value * MS)))
        elif base == b"gc_collect":
            self._gc_ns += event.value * MS
        elif base == b"step_error":
            # `[step 7] step_error: ValueError: …`
            self._fit.ended = event.message.partition("step_error: ")[2].partition(":")[0]
        elif event.event_name == _TOKENS:
            self._tokens = event.value

    def _step(self, event: _Line) -> Iterator[LogEvent]:
        """A step that is over, and the gaps in it; the data ended in one without an update."""
        if not self._updated:
            self._clear()
            return
        whole_ns = round(event.value * MS)
        wall_ns = max(0, whole_ns - sum(gap.duration_ns for gap in self._gaps))
        host_ns, _ = phases_ns(wall_ns, self._spent)
        self._fit.phases.update(self._spent)
        end_ns = 1000 * (event.time_us - self._began_us)
        yield LoggedSteps(
            host_ns=host_ns,
            # Gaps of a step come at its end.
            end_ns=end_ns - whole_ns + wall_ns,
            tags=int(Tag.GC) if self._gc_ns > _LONG_PAUSE * wall_ns else 0,
            micro_batches=max(1, self._passes),
            facts={"tokens_effective": self._tokens, "gc_ns": round(self._gc_ns)},
        )
        yield from self._gaps
        self._clear()


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
