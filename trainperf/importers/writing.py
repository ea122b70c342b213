"""Run directories written from logs: what they hold, and the reasons for what they do not."""

import math
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import datetime, timezone
from operator import itemgetter
from pathlib import Path
from typing import BinaryIO

from trainperf.core.errors import LogError
from trainperf.core.formatting.units import plural
from trainperf.core.loop_kind import STEP_CLOCK
from trainperf.core.phases import DISQUALIFYING, PHASES, Gap, Phase, Tag
from trainperf.core.readings import (
    DATA_WAIT_ALL_FRACTION,
    DATA_WAIT_FRACTION,
    FIRST_STEP_S,
    MEMORY_SLOPE_BYTES_PER_STEP,
    OPTIMIZER_STEPS_PER_S,
    OVERHEAD_S,
    SAMPLES_PER_S,
    STEP_IQR_S,
    STEP_MEAN_S,
    STEP_P95_S,
    STEP_P99_S,
    STEP_S,
    phase_reading,
)
from trainperf.core.run_directory import create, record_file
from trainperf.core.stats.warmup import WINDOW, WarmupDetector
from trainperf.core.steps.block import MEAN_OF
from trainperf.core.steps.codec import encode_entry, encode_rows
from trainperf.core.steps.records import (
    FACTS,
    INTERRUPTED,
    EndMark,
    GapRecord,
    RunInfo,
    Totals,
)
from trainperf.importers.base import (
    LogEvent,
    LogFormat,
    LoggedFit,
    LoggedGap,
    LoggedStart,
    LoggedSteps,
)


_OF_SINGLE_STEPS = (STEP_S, STEP_P95_S, STEP_P99_S, STEP_IQR_S)
"""Readings that a mean over several steps does not have."""
_OF_DATA_WAIT = (DATA_WAIT_FRACTION, DATA_WAIT_ALL_FRACTION)
_IN_NO_LOG = {
    MEMORY_SLOPE_BYTES_PER_STEP: "not covered: the log has no memory of every step",
    OVERHEAD_S: "not applicable: trainperf did not run in this training",
}
_AFTER = {Gap.VALIDATION: int(Tag.AFTER_VALIDATION), Gap.CHECKPOINT: int(Tag.AFTER_CHECKPOINT)}
_WARMUP, _OTHER = int(Tag.WARMUP), int(Phase.OTHER)


def write_run(kind: LogFormat, files: Sequence[Path], base: Path) -> Path:
    """Write what logs of one format hold as a new run directory; returns it.

    Args:
        kind: Their format.
        files: The logs; of one rank they are its attempts.
        base: Directory in which the run directory is made.

    Raises:
        LogError: There is no step in one, or its steps would count twice; nothing is left behind.
        OSError: A file cannot be read or written.
    """
    if len({file.resolve() for file in files}) < len(files) or (kind.cumulative and files[1:]):
        raise LogError(f"{files[-1]}: {kind.title} given twice: its steps would count twice")
    # Logs without a time of day stay in the order in which they are given.
    starts = sorted((_start(kind, file) for file in files), key=itemgetter(0))
    others = f" and {plural(len(files) - 1, 'other file')}" if files[1:] else ""
    note = f"imported from {kind.title}: {files[0].name}{others}"
    run = create(base)
    attempts: Counter[int] = Counter()
    with ExitStack() as undone:
        undone.callback(shutil.rmtree, run)
        for _, rank, file in starts:
            fit = LoggedFit()
            events = kind.read(file, fit)
            start = next(events, None)
            while isinstance(start, LoggedStart):
                if start.rank != rank:
                    raise LogError(
                        f"{file}: lines of rank {rank} and of rank {start.rank}: "
                        "give a file for each rank, as torchtitan writes them"
                    )
                header = RunInfo(
                    started_at=""
                    if start.day_ns is None
                    else datetime.fromtimestamp(start.day_ns / 1e9, tz=timezone.utc).isoformat(),
                    world_size=1 + max(rank for _, rank, _ in starts),
                    columns=kind.columns,
                    device=kind.device,
                    config={"loop": kind.loop, "imported_from": kind.name},
                    rank=rank,
                    attempt=attempts[rank],
                )
                path = record_file(run, rank, attempts[rank])
                with path.open("wb") as records:
                    records.write(encode_entry(header))
                    attempt = _Attempt(kind, fit, records)
                    start = attempt.write(events, note)
                attempts[rank] += attempt.steps > 0
                if not attempt.steps:  # it began and was over before its first step
                    path.unlink()
            if not attempts[rank]:
                raise LogError(f"{file}: {kind.title}, but no step of it: {kind.marks}")
        undone.pop_all()
    return run


def _start(kind: LogFormat, file: Path) -> tuple[int, int, Path]:
    """When the job of a file began, and the rank that it is of."""
    start = next(kind.read(file, LoggedFit()), None)
    return (start.day_ns or 0, start.rank, file) if isinstance(start, LoggedStart) else (0, 0, file)


class _Attempt:
    """One record file while it is written."""

    def __init__(self, kind: LogFormat, fit: LoggedFit, records: BinaryIO) -> None:
        self.steps = 0
        self._kind, self._fit, self._records, self._facts = kind, fit, records, kind.columns[1:]
        self._ends_ns = 0
        self._tags = int(Tag.FIRST_IN_EPOCH)
        """Of the next step; a whole number, as combining flags takes longer than reading a step."""
        self._warmup = WarmupDetector()
        self._means: dict[int, int] = {}
        """Number of steps that a mean is over to the first step that has such a mean."""
        self._own: Counter[str] = Counter()
        self._present: set[str | Phase] = {MEAN_OF, Phase.OTHER}
        """Facts and phases that the log has."""

    def write(self, events: Iterator[LogEvent], note: str) -> LoggedStart | None:
        """Write all of it; what the log goes on with, if that is another attempt."""
        event = next(events, None)
        while isinstance(event, LoggedSteps | LoggedGap):
            if isinstance(event, LoggedSteps):
                self._add_steps(event)
            else:
                self._add_gap(event)
            event = next(events, None)
        fit, clock = self._fit, self._fit.clock or self._kind.clock
        totals = Totals(
            at_step=self.steps - 1,
            own=dict(self._own),
            notes={**fit.notes, "imported": f"{note}; {clock}"},
            reasons={**self._reasons(), **fit.reasons},
            config={**fit.config, STEP_CLOCK: clock},
        )
        # What the fit says of its end is of its last attempt.
        ended, end_ns = (INTERRUPTED, 0) if event else (fit.ended, fit.end_ns or 0)
        end = EndMark(reason=ended, fit_ns=max(self._ends_ns, end_ns), steps=self.steps)
        self._records.write(encode_entry(totals) + encode_entry(end))
        return event

    def _add_steps(self, logged: LoggedSteps) -> None:
        number, host_ns, tags = logged.steps, self._phases_ns(logged), logged.tags
        wall_ns = sum(host_ns)
        mean_of = number if logged.mean_of is None else logged.mean_of
        if mean_of == 1:
            tags |= self._tags
        elif mean_of:
            self._means.setdefault(mean_of, self.steps)
        self._tags = 0
        if not self._warmup.ended:
            # A window of the detector is one of steps, however few means they are.
            for _ in range(min(mean_of, WINDOW)):
                self._warmup.is_warmup(wall_ns, tags)
            tags |= _WARMUP
        if logged.own and not tags & DISQUALIFYING:
            self._own.update({name: number * each for name, each in logged.own.items()})
            self._own["steps"] += number
        of_last = self._of_last(logged)
        self._present.update(of_last, logged.phases_ns)
        # A stamp is rounded, so steps may seem to begin before the ones before end.
        start_ns = max(self._ends_ns, (logged.end_ns or 0) - number * wall_ns)
        self._ends_ns = start_ns + number * wall_ns
        core, names = (tags, logged.micro_batches, *host_ns), self._facts
        rows = [
            [
                self.steps + place,
                start_ns + place * wall_ns,
                *core,
                0 if place else mean_of,
                *map(logged.facts.get, names),
            ]
            for place in range(number)
        ]
        rows[-1][-len(names) :] = map(of_last.get, names)
        self._records.write(encode_rows(rows))
        self.steps += number

    def _phases_ns(self, logged: LoggedSteps) -> list[int]:
        """Nanoseconds of a step in each phase, in their order."""
        named_ns = sum(logged.phases_ns.values())
        scale = logged.wall_ns / named_ns if named_ns > logged.wall_ns else 1.0
        host_ns = [round(scale * logged.phases_ns.get(phase, 0.0)) for phase in PHASES]
        host_ns[_OTHER] = max(0, logged.wall_ns - sum(host_ns))
        # A thousandth is what is lost where each is rounded to a hundredth of a millisecond.
        if scale < 0.999:
            self._fit.notes["timers"] = (
                "the phases of the slowest ranks add up to more than some steps: cut in proportion"
            )
        return host_ns

    def _of_last(self, logged: LoggedSteps) -> dict[str, float | None]:
        """Facts of the last step; a loss that is not finite is none."""
        facts = {**logged.facts, **logged.last}
        loss = facts.get("loss")
        if loss is not None and math.isfinite(loss):
            self._fit.notes.pop("loss", None)
        elif loss is not None:
            self._fit.notes.setdefault("loss", f"not finite since step {self.steps + logged.steps}")
            facts["loss"] = None
        return facts

    def _add_gap(self, logged: LoggedGap) -> None:
        gap = GapRecord(
            gap=logged.gap.label,
            start_ns=self._ends_ns,
            duration_ns=logged.duration_ns,
            after_step=self.steps - 1,
        )
        self._records.write(encode_entry(gap))
        self._ends_ns += logged.duration_ns
        self._tags |= _AFTER.get(logged.gap, 0)

    def _reasons(self) -> dict[str, str]:
        """Why readings have no value: what the format never holds, and what this log does not."""
        why_not, present = self._kind.why_not, self._present
        reasons = _IN_NO_LOG | {name: why_not(name) for name in FACTS if name not in present}
        reasons |= {
            phase_reading(phase.label): f"{why_not(phase.label)}; it is in `other`"
            for phase in PHASES
            if phase not in present
        }
        if Phase.DATA_WAIT not in present:
            reasons |= dict.fromkeys(_OF_DATA_WAIT, why_not(Phase.DATA_WAIT.label))
        if self._means:
            over = " to ".join(f"{mean:,}" for mean in sorted({min(self._means), max(self._means)}))
            only = f"not covered: the log holds means over {over} steps"
            reasons |= dict.fromkeys(_OF_SINGLE_STEPS, only)
            if 0 in self._means.values():
                reasons[FIRST_STEP_S] = only
        if not self._warmup.ended and list(self._means) == [self.steps]:
            only = f"not covered: the log holds one mean over all {plural(self.steps, 'step')}"
            reasons |= dict.fromkeys((STEP_MEAN_S, OPTIMIZER_STEPS_PER_S, SAMPLES_PER_S), only)
        return reasons
