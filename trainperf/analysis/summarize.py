"""Summary of a run: readings, ledger, ranks and findings, from one pass over its directory."""

import re
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from trainperf.analysis.roofline.utilisation import UtilisationFold
from trainperf.analysis.rules import diagnose
from trainperf.analysis.rules.base import Evidence, light_of
from trainperf.analysis.rules.input.base import keeping_up
from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.replay import Replay
from trainperf.analysis.run.trials_beside import trials_beside
from trainperf.analysis.summary.breakdown import with_time_split
from trainperf.analysis.summary.capture_aftermath import CaptureFold
from trainperf.analysis.summary.lines import StepTimesFold, phase_lines
from trainperf.analysis.summary.run_facts import completed_info, diverged, run_facts, warnings_of
from trainperf.analysis.summary.schema import Summary, encode_summary
from trainperf.analysis.summary.stragglers import LatenessFold
from trainperf.analysis.summary.trace_agreement import TraceAgreementFold, disagreements
from trainperf.core.artifacts.folder import Documents, read_documents
from trainperf.core.loop_kind import LIGHTNING, loop_of
from trainperf.core.phases import DISQUALIFYING, TAGS
from trainperf.core.readings import ALLREDUCE_SKEW_S, LOSS, STEP_MEAN_S, STEP_S
from trainperf.core.run_directory import SUMMARY, write_atomically
from trainperf.core.steps.block import StepBlock
from trainperf.core.steps.records import RunInfo
from trainperf.meters import METERS
from trainperf.meters.fold import NO_STEADY_STATE, Fold, Reading, readings
from trainperf.meters.own import across
from trainperf.traces.capture_files import CaptureReport, read_all


def summarize(run: Run, *, now_s: float | None = None) -> Summary:
    """The summary of `examine`, findings included."""
    return examine(run, now_s=now_s).summary


_EARLIER_OWN_HOOK = re.compile(
    r"(TrainPerf|ScheduledProfiler|(AllReduceTail|DataWait|GradScaler|H2D|Memory|StepTime"
    r"|TokenThroughput)Monitor)\W"
)
"""Hooks of trainperf itself, which runs of November 2026 and before list among the user's."""


class StepObserver(Protocol):
    """Fed with the steps of a run in the same pass that makes its summary."""

    def observe(self, blocks: Sequence[StepBlock]) -> None:
        """Take the next steps: one block per rank, empty for one that took no part."""


def examine(
    run: Run,
    *,
    now_s: float | None = None,
    replay: Replay | None = None,
    observers: Sequence[StepObserver] = (),
) -> Evidence:
    """Read a run once, in constant memory: its summary, and all that findings are based on.

    Args:
        run: The opened run directory.
        now_s: Seconds since 1970, to tell a running fit from a killed one by the last write;
            without it only one whose process is seen to be gone counts as killed.
        replay: The pass itself, for observers that need its journals; a new one by default.
        observers: Fed with every step in the same pass.
    """
    documents, captures = read_documents(run.path), tuple(read_all(run.path))
    folds = _RunFolds(replay or Replay(run), documents, captures)
    folds.read(observers)
    summary = keeping_up(_summary(folds, documents, now_s))
    if documents.trials is None and (beside := trials_beside(run, summary.value(STEP_MEAN_S))):
        trials, of = beside.trials, str(beside.run)
        documents = replace(documents, trials=trials, trials_from=of)
        summary = msgspec.structs.replace(summary, trials=trials, trials_from=of)
    typical_audit = folds.utilisation.typical()
    step_s = None if typical_audit is None else summary.value(STEP_S)
    light = light_of(documents, step_s)
    typical = None
    if typical_audit is not None:
        typical = light_of(replace(documents, audit=typical_audit), step_s)
    summary = with_time_split(summary, documents.audit, light, captures, typical=typical)
    evidence = Evidence(
        summary=summary, documents=documents, light=light, typical=typical, captures=captures
    )
    diagnosed = msgspec.structs.replace(summary, findings=diagnose(evidence))
    return replace(evidence, summary=diagnosed)


def save_summary(summary: Summary, run: Path) -> None:
    """Write `summary.json` into the directory *run*, whole or not at all.

    Raises:
        OSError: The file cannot be written.
    """
    write_atomically(run / SUMMARY, encode_summary(summary))


class _RunFolds:
    """Everything that is computed from the steps of a run, fed in one pass over them."""

    def __init__(
        self, replay: Replay, documents: Documents, captures: Sequence[CaptureReport]
    ) -> None:
        self.run = run = replay.run
        self.replay = replay
        self.meters = [Fold(METERS) for _ in run.ranks]
        # Lightning makes its ranks wait for each other before every fetch.
        self.lateness = LatenessFold(run.ranks, loop_waits=loop_of(run.info.config) is LIGHTNING)
        self.traces = TraceAgreementFold(captures, run.ranks, restarted=len(run.attempts) > 1)
        self.utilisation = UtilisationFold(documents)
        self.captures = CaptureFold()
        self.excluded = ExcludedFold()
        self.times = StepTimesFold()

    def read(self, observers: Sequence[StepObserver]) -> None:
        """Pass over all steps; the replay's journals are complete afterwards."""
        of_all_ranks: tuple[StepObserver, ...] = (
            self.lateness,
            self.traces,
            self.utilisation,
            self.times,
            *observers,
        )
        for blocks in self.replay.blocks():
            for fold, block in zip(self.meters, blocks, strict=True):
                fold.observe(block)
            for observer in of_all_ranks:
                observer.observe(blocks)
            present = [block for block in blocks if len(block)]
            slowest_s = np.maximum.reduce([block.wall_ns for block in present]) / 1e9
            self.captures.observe(present[0], slowest_s)
            self.excluded.observe(present[0].tags)

    @property
    def longest(self) -> Fold:
        """The meters of the rank with the most steps."""
        return max(self.meters, key=lambda fold: fold.steps)

    def readings(self) -> dict[str, Reading]:
        """All readings, those of the user's own meters included."""
        info = completed_info(self.run.info, self.replay.journals[self.run.ranks[0]])
        result = readings(self.meters, info)
        result[ALLREDUCE_SKEW_S] = _skew(self.lateness, info, self.longest)
        result |= _own_readings(self.replay, taken=frozenset(result))
        since = diverged(self.replay)
        if since:
            result[LOSS] = Reading(value=None, unit="1", reason=since)
        return result | self.utilisation.readings()


def _summary(folds: _RunFolds, documents: Documents, now_s: float | None) -> Summary:
    """Everything but the time split and the findings."""
    run, replay = folds.run, folds.replay
    first = replay.journals[run.ranks[0]]
    all_readings = folds.readings()
    facts = run_facts(run, replay, folds.longest, all_readings[STEP_MEAN_S].value, now_s=now_s)
    traces = folds.traces.traces()
    # Samples of a later attempt are numbered by its own steps.
    lines = documents.lines if len(run.attempts) == 1 else None
    return Summary(
        run=facts,
        readings=all_readings,
        ledger_s=first.ledger_s(),
        gaps=first.gap_counts,
        excluded=folds.excluded.steps,
        synchronisation=folds.lateness.points(),
        captures=folds.captures.captures(),
        traces=traces,
        sequence_lengths=_sequence_lengths(replay),
        actions_s=_actions_s(replay),
        memory=documents.memory,
        compilation=documents.compilation,
        loader=documents.loader,
        lines=phase_lines(lines, folds.times.steady()),
        slow_steps=folds.times.slow_steps(lines),
        trials=documents.trials,
        warnings=(
            *warnings_of(run, replay, facts),
            *disagreements(traces),
            *documents.problems.values(),
        ),
    )


class ExcludedFold:
    """Counts the steps excluded from the steady statistics.

    A step with several disqualifying tags is counted once, under the first in the order of `Tag`.
    """

    def __init__(self) -> None:
        self.steps: dict[str, int] = {}
        """Tag to steps."""

    def observe(self, tags: npt.NDArray[np.int64]) -> None:
        """Take the tags of the next steps."""
        remaining = tags & DISQUALIFYING
        for tag in TAGS:
            tagged = (remaining & tag) != 0
            if tagged.any():
                self.steps[tag.label] = self.steps.get(tag.label, 0) + int(tagged.sum())
                remaining = np.where(tagged, 0, remaining)


def _skew(lateness: LatenessFold, info: RunInfo, fold: Fold) -> Reading:
    """Median over steady steps of the largest skew at the all-reduce, seconds."""
    skew = lateness.skew()
    if skew is not None:
        low, high = skew.interval() or (None, None)
        return Reading(value=skew.value(), unit="s", n=skew.n, low=low, high=high)
    if info.world_size == 1:
        reason = "one rank: no other rank to wait for"
    elif "tail_ns" in info.reasons:
        reason = info.reasons["tail_ns"]
    elif not fold.steady_steps:
        reason = NO_STEADY_STATE
    else:
        reason = "not measured: needs the all-reduce tail of at least two ranks"
    return Reading(value=None, unit="s", reason=reason)


def _own_readings(replay: Replay, taken: Collection[str]) -> dict[str, Reading]:
    """Readings of the user's own meters in the latest attempt, written by the training itself."""
    of_ranks = [journal.totals.readings for journal in replay.journals.values()]
    names = dict.fromkeys(name for readings in of_ranks for name in readings)
    return {
        name: across([readings.get(name) for readings in of_ranks])
        for name in names
        if name not in taken
    }


def _sequence_lengths(replay: Replay) -> dict[int, int]:
    """The histogram of all ranks, in the order of lengths."""
    lengths: dict[int, int] = {}
    for journal in replay.journals.values():
        for edge, number in journal.totals.sequence_lengths.items():
            lengths[edge] = lengths.get(edge, 0) + number
    return dict(sorted(lengths.items()))


def _actions_s(replay: Replay) -> dict[str, float]:
    """Host time of each user hook per step, on the rank where it is largest, longest first."""
    slowest: dict[str, float] = {}
    for journal in replay.journals.values():
        for action, spent_ns in journal.totals.actions_ns.items():
            if _EARLIER_OWN_HOOK.match(action):
                continue
            per_step_s = spent_ns / 1e9 / max(1, journal.steps)
            slowest[action] = max(slowest.get(action, 0.0), per_step_s)
    return dict(sorted(slowest.items(), key=lambda item: -item[1]))
