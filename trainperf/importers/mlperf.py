"""Importer of MLPerf training logs: lines `:::MLLOG {…}`.

They have times of day in milliseconds, where blocks or epochs of training and evaluations begin and
end, and how many samples were seen by then.  Read in `mlcommons/logging` (July 2026: `mllog`, the
rules of training 6.1) and in published results.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import msgspec

from trainperf.core.errors import LogError
from trainperf.core.phases import Gap, Phase
from trainperf.core.steps.records import INTERRUPTED
from trainperf.importers.base import (
    MS,
    LogEvent,
    LogFormat,
    LoggedFit,
    LoggedGap,
    LoggedRestart,
    LoggedSteps,
    LossWatch,
    lines_of,
    phases_ns,
)


_LINE = re.compile(rb":::MLLOG (\{.*\})")

_SETTINGS: Mapping[str, str] = {
    "submission_benchmark": "model",
    "submission_platform": "platform",
    "global_batch_size": "batch_size",
    "gradient_accumulation_steps": "accumulate_grad_batches",
    "lowest_numerical_precision_in_linear": "precision",
    "opt_name": "optimizers",
    "seed": "seed",
    "max_sequence_length": "sequence_length",
    "train_samples": "train_samples",
}
_LOSSES = ("reduced_train_loss", "train_loss", "loss")
_BLOCKS = frozenset({"block_start", "block_stop", "epoch_start", "epoch_stop"})
_BEGINS = frozenset({"init_start", "submission_benchmark", "run_start"})
_POINTS = frozenset({"tracked_stats", "train_loss"})
"""Events inside of a block after which the samples seen are known."""


class _Event(msgspec.Struct):
    """What is read of a line."""

    time_ms: float
    key: str
    value: Any = None
    metadata: dict[str, Any] | None = None
    namespace: str = ""


def read(files: Sequence[Path]) -> list[LoggedFit]:
    """One fit for each file, as every run of a submission writes a log of its own."""
    fits = []
    for file in files:
        fit = LoggedFit(events=iter(()))
        first = next(_events_of(file), None)
        if first is None:
            raise LogError(f"{file}: no event of an MLPerf log in it: {FORMAT.marks}")
        fit.started_at = _started_at(first)
        fit.events = _Reader(file, fit, first).events()
        fits.append(fit)
    return fits


def _started_at(first: _Event) -> str:
    return datetime.fromtimestamp(first.time_ms / 1e3, tz=timezone.utc).isoformat()


def _events_of(file: Path) -> Iterator[_Event]:
    for line in lines_of(file):
        match = _LINE.search(line)
        if match is None:
            continue
        try:
            yield msgspec.json.decode(match[1], type=_Event)
        except (msgspec.DecodeError, UnicodeDecodeError):
            event = _with_nan(match[1])
            if event is not None:
                yield event


def _with_nan(text: bytes) -> _Event | None:
    """An event whose value is NaN, which Python writes and JSON does not have."""
    try:
        return msgspec.convert(json.loads(text), _Event)
    except (ValueError, msgspec.ValidationError):
        return None


class _Reader:
    """One log while it is read."""

    def __init__(self, file: Path, fit: LoggedFit, first: _Event) -> None:
        self._file, self._fit = file, fit
        self._losses = LossWatch(fit)
        self._begin(first)

    def _begin(self, first: _Event) -> None:
        """An attempt, whose times and samples are its own."""
        self._first = first
        self._samples = 0.0
        """Seen so far."""
        self._since_ms: float | None = None
        """Begin of the training whose steps are not read yet; `None` between blocks."""
        self._of_block: float | None = None
        """Samples that the line of the block's begin has."""
        self._evaluating_ms: float | None = None
        self._evaluations: list[LoggedGap] = []
        """In the open block."""
        self._last: dict[str, float | None] = {}

    def events(self) -> Iterator[LogEvent]:
        """The steps and gaps, in order."""
        for event in _events_of(self._file):
            if event.namespace != self._first.namespace:
                other = f"lines of {self._first.namespace or 'no namespace'!r} alone are read"
                self._fit.notes["namespace"] = other
                continue
            if event.key in _BEGINS and self._samples:
                # Another job behind this one, or the same once more.
                self._begin(event)
                self._fit.end_ns = None
                yield LoggedRestart(started_at=_started_at(event))
            yield from self._take(event)

    def _take(self, event: _Event) -> Iterator[LogEvent]:
        key, metadata = event.key, event.metadata or {}
        if key in _SETTINGS and isinstance(event.value, (str, int, float)):
            self._fit.config[_SETTINGS[key]] = event.value
        elif key == "run_start":
            yield LoggedGap(gap=Gap.STARTUP, duration_ns=self._since_first_ns(event))
        elif key in _BLOCKS:
            yield from self._bounded(event, metadata)
        elif key in _POINTS:
            self._note_loss(event)
            yield from self._until(event, metadata.get("samples_count", 0))
        elif key in ("eval_start", "eval_stop"):
            yield from self._evaluated(event)
        elif key == "run_stop":
            self._ended(event, metadata)

    def _since_first_ns(self, event: _Event) -> int:
        return round((event.time_ms - self._first.time_ms) * MS)

    def _bounded(self, event: _Event, metadata: Mapping[str, Any]) -> Iterator[LogEvent]:
        """Begin or end of a block or an epoch."""
        if event.key.endswith("stop"):
            yield from self._until(event, self._samples_until(metadata))
            self._since_ms = None
        elif self._since_ms is None:
            self._since_ms, self._of_block = event.time_ms, metadata.get("samples_count")

    def _ended(self, event: _Event, metadata: Mapping[str, Any]) -> None:
        self._fit.end_ns = self._since_first_ns(event)
        if metadata.get("status") == "aborted":
            self._fit.ended = INTERRUPTED

    def _evaluated(self, event: _Event) -> Iterator[LogEvent]:
        began_ms, self._evaluating_ms = self._evaluating_ms, None
        if event.key == "eval_start":
            self._evaluating_ms = event.time_ms
        if began_ms is None:
            return
        gap = LoggedGap(
            gap=Gap.VALIDATION,
            duration_ns=round((event.time_ms - began_ms) * MS),
            end_ns=self._since_first_ns(event),
        )
        if self._since_ms is None:
            yield gap
        else:
            self._evaluations.append(gap)

    def _samples_until(self, metadata: Mapping[str, Any]) -> float:
        """Samples seen by the end of a block or an epoch."""
        counted, of_block = metadata.get("samples_count"), self._of_block
        if isinstance(counted, (int, float)):
            # Some logs have the samples of the block in both lines, others those seen so far.
            return self._samples + counted if counted == of_block else counted
        epochs = metadata.get("epoch_count", 1)
        samples = self._fit.config.get("train_samples")
        return self._samples + (epochs * samples if isinstance(samples, (int, float)) else 0)

    def _until(self, event: _Event, samples: float) -> Iterator[LogEvent]:
        """The steps of the open block up to an event."""
        batch = self._fit.config.get("batch_size")
        if self._since_ms is None or not isinstance(batch, (int, float)) or not batch:
            return
        number = round((samples - self._samples) / batch)
        if number < 1:
            return
        spent_ns = sum(gap.duration_ns for gap in self._evaluations)
        wall_ns = max(0, round((event.time_ms - self._since_ms) * MS) - spent_ns)
        host_ns, _ = phases_ns(wall_ns // number, {})
        passes = self._fit.config.get("accumulate_grad_batches")
        yield LoggedSteps(
            host_ns=host_ns,
            steps=number,
            end_ns=self._since_first_ns(event) - spent_ns,
            micro_batches=passes if isinstance(passes, int) and passes > 0 else 1,
            facts={"samples": (samples - self._samples) / number},
            last=self._last,
        )
        yield from self._evaluations
        self._samples, self._since_ms = samples, event.time_ms
        self._evaluations, self._last = [], {}

    def _note_loss(self, event: _Event) -> None:
        values = event.value if isinstance(event.value, dict) else {"loss": event.value}
        loss = next((values[name] for name in _LOSSES if name in values), None)
        if isinstance(loss, (int, float)):
            self._last["loss"] = self._losses.take(loss, 0)


FORMAT = LogFormat(
    name="mlperf",
    title="an MLPerf log",
    marks="lines `:::MLLOG {…}` with global_batch_size, block_start and block_stop or epoch_start "
    "and epoch_stop, and how many samples that is (samples_count, or train_samples)",
    mark=re.compile(rb':::MLLOG \{[^\n]*"time_ms": ?\d'),
    read=read,
    clock="a step is the mean of its block or epoch, without evaluations, by the time of day",
    holds={
        Gap.STARTUP.label: "from the first line to `run_start`",
        Gap.VALIDATION.label: "`eval_start` to `eval_stop`",
        "samples": "`samples_count`, or `train_samples` for each epoch: of the whole job",
        "loss": "`train_loss`, or a loss in `tracked_stats`",
    },
    lacks={
        phase.label: "MLPerf logs time no part of a step"
        for phase in Phase
        if phase is not Phase.OTHER
    },
)
