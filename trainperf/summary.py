"""What does a run say?  All meters, the ledger, the ranks and the findings, from its directory."""

import os
import re
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from trainperf.captures import CaptureFold
from trainperf.ledger import UNATTRIBUTED, Journal
from trainperf.meters import METERS
from trainperf.meters.fold import NO_STEADY_STATE, Fold, Reading, readings
from trainperf.phases import DISQUALIFYING, TAGS
from trainperf.ranks import LatenessFold
from trainperf.records import RunInfo
from trainperf.replay import Replay
from trainperf.results import NOT_CLOSED, RunFacts, State, Summary, encode_summary
from trainperf.rules import diagnose
from trainperf.run import Run
from trainperf.traced import TracedFold, disagreements
from trainperf.units import duration, plural
from trainperf.utilisation import UtilisationFold


SILENT_S = 120.0
"""A run without an end mark that wrote nothing for so long, or for a hundred steps, is dead."""

TOLERABLE = 0.01
"""Share of the fit that may be in no record; by construction it is nearly none."""

LIGHTNING = "lightning"
"""The loop (`config["loop"]`) that makes its ranks wait for each other before every fetch."""

_SILENT_STEPS = 100
_ENDINGS: dict[str, State] = {
    "finished": "finished",
    "interrupted": "interrupted",
    NOT_CLOSED: "interrupted",
}
OUR_CALLBACKS = frozenset(
    {
        "AllReduceTailMonitor",
        "DataWaitMonitor",
        "GradScalerMonitor",
        "H2DMonitor",
        "MemoryMonitor",
        "ScheduledProfiler",
        "StepTimeMonitor",
        "TokenThroughputMonitor",
        "TrainPerf",
    }
)
"""What `trainperf.lightning` exports, which loads torch: their hooks are our cost, not a user's."""

_CLASS_ENDS = re.compile(r"\W")


def summarize(run: Run, *, now_s: float | None = None) -> Summary:
    """Read a run once, in constant memory, and say what it shows.

    Args:
        run: The opened run directory.
        now_s: Seconds since 1970, to tell a running fit from a killed one by the last write;
            without it every run that lacks an end mark counts as running.
    """
    replay = Replay(run)
    folds = [Fold(METERS) for _ in run.ranks]
    lateness = LatenessFold(run.ranks, loop_waits=run.info.config.get("loop") == LIGHTNING)
    captures, excluded = CaptureFold(), Excluded()
    utilised = UtilisationFold(run.path)
    traced = TracedFold(run.path, run.ranks, restarted=len(run.attempts) > 1)
    for blocks in replay.blocks():
        for fold, block in zip(folds, blocks, strict=True):
            fold.observe(block)
        lateness.observe(blocks)
        utilised.observe(blocks[0])
        traced.observe(blocks)
        present = [block for block in blocks if len(block)]
        captures.observe(present[0], np.maximum.reduce([block.wall_ns for block in present]) / 1e9)
        excluded.observe(present[0].tags)
    first = replay.journals[run.ranks[0]]
    info = _learned(run.info, first)
    found = readings(folds, info)
    longest = max(folds, key=lambda fold: fold.steps)
    found["allreduce_skew_s"] = _skew(lateness, info, longest)
    diverged = _diverged(replay)
    if diverged:
        found["loss"] = Reading(value=None, unit="1", reason=diverged)
    found.update(utilised.readings())
    facts = _facts(run, replay, longest, found, now_s=now_s)
    summary = Summary(
        run=facts,
        readings=found,
        ledger_s=first.ledger_s(),
        gaps=first.gap_counts,
        excluded=excluded.steps,
        synchronisation=lateness.points(),
        captures=captures.captures(),
        traces=traced.traces(),
        sequence_lengths=_sequence_lengths(replay),
        actions_s=_actions_s(replay),
        warnings=(*_warnings(run, replay, facts), *disagreements(traced.traces())),
    )
    return msgspec.structs.replace(summary, findings=diagnose(summary))


def write_summary(path: Path | str, *, now_s: float | None = None) -> Summary:
    """Summarize the run at *path* and write `summary.json` into it, whole or not at all.

    Raises:
        RunError: It is no run directory.
        OSError: The file cannot be written.
    """
    run = Run.open(path)
    summary = summarize(run, now_s=now_s)
    target = run.path / "summary.json"
    # Readers never see half a file: the rename replaces it in one go.
    draft = target.with_name(f".summary-{os.getpid()}.json")
    try:
        draft.write_bytes(encode_summary(summary))
        draft.replace(target)
    finally:
        draft.unlink(missing_ok=True)
    return summary


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


def _learned(info: RunInfo, journal: Journal) -> RunInfo:
    """The header with what was learned while training."""
    return msgspec.structs.replace(
        info,
        notes={**info.notes, **journal.totals.notes},
        reasons={**info.reasons, **journal.totals.reasons},
        config={**info.config, **journal.totals.config},
    )


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


def _facts(
    run: Run, replay: Replay, fold: Fold, found: dict[str, Reading], *, now_s: float | None
) -> RunFacts:
    info, first = run.info, replay.journals[run.ranks[0]]
    learned = _learned(info, first)
    silent_s = max(SILENT_S, _SILENT_STEPS * (found["step_mean_s"].value or 0.0))
    silent = now_s is not None and now_s - run.last_write_s() > silent_s
    state = _state(first, silent=silent)
    return RunFacts(
        path=str(run.path),
        name=run.name,
        state=state,
        end_reason=_end_reason(first),
        started_at=run.attempts[0][0].info.started_at,
        attempts=len(run.attempts),
        continues=info.continues,
        ranks=run.ranks,
        world_size=info.world_size,
        device=info.device,
        steps=fold.steps,
        steady_steps=fold.steady_steps,
        left_out_steps=replay.left_out,
        fit_s=first.fit_ns / 1e9,
        earlier=info.totals,
        software=info.software,
        hardware=info.hardware,
        config=learned.config,
        notes={**_notes_of_others(replay), **learned.notes},
        faults=first.totals.faults,
        dropped=first.totals.dropped,
    )


def _state(journal: Journal, *, silent: bool) -> State:
    if journal.end is None:
        return "killed" if silent else "running"
    return _ENDINGS.get(journal.end.reason, "failed")


def _notes_of_others(replay: Replay) -> dict[str, str]:
    """Notes of ranks that may do what the first does not, e.g. capture; the lowest's holds."""
    notes: dict[str, str] = {}
    for journal in replay.journals.values():
        notes = {**journal.totals.notes, **notes}
    return notes


def _end_reason(journal: Journal) -> str | None:
    reason = journal.end.reason if journal.end else "finished"
    return None if reason in ("finished", "interrupted") else reason


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
            if _CLASS_ENDS.split(action, maxsplit=1)[0] in OUR_CALLBACKS:
                continue
            per_step_s = spent_ns / 1e9 / max(1, journal.steps)
            slowest[action] = max(slowest.get(action, 0.0), per_step_s)
    return dict(sorted(slowest.items(), key=lambda item: -item[1]))


def _warnings(run: Run, replay: Replay, facts: RunFacts) -> tuple[str, ...]:
    warnings = list(run.warnings)
    warnings += _missing_ranks(run)
    for journal in replay.journals.values():
        if journal.damaged_lines:
            lines = plural(journal.damaged_lines, "damaged line")
            warnings.append(f"rank {journal.rank}: {lines} left out")
    # While a run is being written its ranks have flushed different steps: nothing is wrong.
    if facts.left_out_steps and facts.state != "running":
        steps = plural(facts.left_out_steps, "step")
        warnings.append(f"{steps} left out: not every rank recorded them")
    loose_s = replay.journals[facts.ranks[0]].ledger_s()[UNATTRIBUTED]
    if abs(loose_s) > TOLERABLE * facts.fit_s:
        warnings.append(f"{duration(loose_s)} of the fit are in no record")
    diverged = _diverged(replay)
    if diverged:
        warnings.append(f"the loss is {diverged}")
    warnings += [f"{part} was switched off: {error}" for part, error in facts.faults.items()]
    warnings += [
        f"{part}: {plural(number, 'measurement')} dropped, a buffer was full"
        for part, number in facts.dropped.items()
    ]
    return tuple(warnings)


def _diverged(replay: Replay) -> str:
    """Since when the loss is no number, on the first rank where it is not; empty if it always is.

    Of the latest attempt: a restart from a checkpoint may have brought it back.
    """
    said = (journal.learned.notes.get("loss", "") for journal in replay.journals.values())
    return next(filter(None, said), "")


def _missing_ranks(run: Run) -> list[str]:
    said = []
    for files in run.attempts:
        present, world_size = {file.rank for file in files}, files[0].info.world_size
        missing = sorted(set(range(world_size)) - present)
        if missing:
            attempt = f"attempt {files[0].attempt}: " if len(run.attempts) > 1 else ""
            named = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
            said.append(
                f"{attempt}{len(present)} of {world_size} ranks read (missing: {named}): "
                "sums over ranks are too low"
            )
    return said
