"""What does a run say?  All meters, the ledger, the ranks and the findings, from its directory."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import msgspec
import numpy as np
import numpy.typing as npt

from trainperf.analysis.evidence import Evidence, light_of
from trainperf.analysis.roofline.utilisation import UtilisationFold
from trainperf.analysis.rules import diagnose
from trainperf.analysis.rules.input.loading import keeping_up
from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.replay import Replay
from trainperf.analysis.summary.breakdown import broken_down
from trainperf.analysis.summary.capture_aftermath import CaptureFold
from trainperf.analysis.summary.run_facts import learned, run_facts
from trainperf.analysis.summary.schema import Summary, encode_summary
from trainperf.analysis.summary.stragglers import LatenessFold
from trainperf.analysis.summary.trace_agreement import TracedFold, disagreements
from trainperf.analysis.summary.warnings import diverged, warnings_of
from trainperf.core.artifacts.folder import Documents, read_documents
from trainperf.core.phases import DISQUALIFYING, TAGS
from trainperf.core.run_directory import SUMMARY, write_atomically
from trainperf.core.steps.block import StepBlock
from trainperf.core.steps.records import RunInfo
from trainperf.meters import METERS
from trainperf.meters.fold import NO_STEADY_STATE, Fold, Reading, readings
from trainperf.traces.capture_files import CaptureReport, read_all


LIGHTNING = "lightning"
"""The loop (`config["loop"]`) that makes its ranks wait for each other before every fetch."""


def summarize(run: Run, *, now_s: float | None = None) -> Summary:
    """The summary of `examine`, findings included."""
    return examine(run, now_s=now_s).summary


class StepObserver(Protocol):
    """Fed with the steps of a run in the same pass that makes its summary."""

    def observe(self, blocks: Sequence[StepBlock]) -> None:
        """Take the next steps: one block a rank, empty for one that took no part."""


def examine(
    run: Run, *, now_s: float | None = None, observers: Sequence[StepObserver] = ()
) -> Evidence:
    """Read a run once, in constant memory, and say what it shows.

    Args:
        run: The opened run directory.
        now_s: Seconds since 1970, to tell a running fit from a killed one by the last write;
            without it every run that lacks an end mark counts as running.
        observers: Fed with every step in the same pass.
    """
    documents, captures = read_documents(run.path), tuple(read_all(run.path))
    utilised = UtilisationFold(documents)
    summary = _summary(run, documents, captures, (utilised, *observers), now_s)
    readings = {**summary.readings, **utilised.readings()}
    summary = msgspec.structs.replace(summary, readings=readings)
    usual = utilised.typical()
    step_s = None if usual is None else summary.readings["step_s"].value
    light = light_of(documents, step_s)
    typical = None if usual is None else light_of(replace(documents, audit=usual), step_s)
    summary = broken_down(keeping_up(summary), documents.audit, light, captures, typical=typical)
    evidence = Evidence(
        summary=summary, documents=documents, light=light, typical=typical, captures=captures
    )
    found = msgspec.structs.replace(summary, findings=diagnose(evidence))
    return replace(evidence, summary=found)


def _summary(
    run: Run,
    documents: Documents,
    traces: Sequence[CaptureReport],
    observers: Sequence[StepObserver],
    now_s: float | None,
) -> Summary:
    """Everything but the findings."""
    replay = Replay(run)
    folds = [Fold(METERS) for _ in run.ranks]
    lateness = LatenessFold(run.ranks, loop_waits=run.info.config.get("loop") == LIGHTNING)
    captures, excluded = CaptureFold(), Excluded()
    traced = TracedFold(traces, run.ranks, restarted=len(run.attempts) > 1)
    for blocks in replay.blocks():
        for fold, block in zip(folds, blocks, strict=True):
            fold.observe(block)
        lateness.observe(blocks)
        traced.observe(blocks)
        for observer in observers:
            observer.observe(blocks)
        present = [block for block in blocks if len(block)]
        captures.observe(present[0], np.maximum.reduce([block.wall_ns for block in present]) / 1e9)
        excluded.observe(present[0].tags)
    first = replay.journals[run.ranks[0]]
    info = learned(run.info, first)
    found = readings(folds, info)
    longest = max(folds, key=lambda fold: fold.steps)
    found["allreduce_skew_s"] = _skew(lateness, info, longest)
    since = diverged(replay)
    if since:
        found["loss"] = Reading(value=None, unit="1", reason=since)
    facts = run_facts(run, replay, longest, found, now_s=now_s)
    compared = traced.traces()
    return Summary(
        run=facts,
        readings=found,
        ledger_s=first.ledger_s(),
        gaps=first.gap_counts,
        excluded=excluded.steps,
        synchronisation=lateness.points(),
        captures=captures.captures(),
        traces=compared,
        sequence_lengths=_sequence_lengths(replay),
        actions_s=_actions_s(replay),
        memory=documents.memory,
        compilation=documents.compilation,
        loader=documents.loader,
        warnings=(
            *warnings_of(run, replay, facts),
            *disagreements(compared),
            *documents.problems.values(),
        ),
    )


def write_summary(path: Path | str, *, now_s: float | None = None) -> Summary:
    """Summarize the run at *path* and write `summary.json` into it, whole or not at all.

    Raises:
        RunError: It is no run directory.
        OSError: The file cannot be written.
    """
    run = Run.open(path)
    summary = summarize(run, now_s=now_s)
    save_summary(summary, run.path)
    return summary


def save_summary(summary: Summary, run: Path) -> None:
    """Write `summary.json` into the directory *run*, whole or not at all.

    Raises:
        OSError: The file cannot be written.
    """
    write_atomically(run / SUMMARY, encode_summary(summary))


class Excluded:
    """Counts the steps left out of the steady statistics, each under its first reason.

    A step with several disqualifying tags is counted once, under the first in the order of `Tag`.
    """

    def __init__(self) -> None:
        self.steps: dict[str, int] = {}

    def observe(self, tags: npt.NDArray[np.int64]) -> None:
        """Take the tags of the next steps."""
        left = tags & DISQUALIFYING
        for tag in TAGS:
            mine = (left & tag) != 0
            if mine.any():
                self.steps[tag.label] = self.steps.get(tag.label, 0) + int(mine.sum())
                left = np.where(mine, 0, left)


def _skew(lateness: LatenessFold, info: RunInfo, fold: Fold) -> Reading:
    """Median over steady steps of the largest skew at the all-reduce, seconds."""
    skew = lateness.skew()
    if skew is not None:
        low, high = skew.interval() or (None, None)
        return Reading(value=skew.value(), unit="s", n=skew.n, low=low, high=high)
    if info.world_size == 1:
        reason = "one rank: nobody to wait for"
    elif "tail_ns" in info.reasons:
        reason = info.reasons["tail_ns"]
    elif not fold.steady_steps:
        reason = NO_STEADY_STATE
    else:
        reason = "not measured: needs the all-reduce tail of at least two ranks"
    return Reading(value=None, unit="s", reason=reason)


def _sequence_lengths(replay: Replay) -> dict[int, int]:
    lengths: dict[int, int] = {}
    for journal in replay.journals.values():
        for edge, number in journal.totals.sequence_lengths.items():
            lengths[edge] = lengths.get(edge, 0) + number
    return dict(sorted(lengths.items()))


def _actions_s(replay: Replay) -> dict[str, float]:
    slowest: dict[str, float] = {}
    for journal in replay.journals.values():
        for action, spent_ns in journal.totals.actions_ns.items():
            per_step_s = spent_ns / 1e9 / max(1, journal.steps)
            slowest[action] = max(slowest.get(action, 0.0), per_step_s)
    return dict(sorted(slowest.items(), key=lambda item: -item[1]))
