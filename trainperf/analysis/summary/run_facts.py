"""Facts of a run: its identity, how far it came, how it ended, and warnings about its files.

A rank ended by its end mark, by its process where that can be seen, else by silence.  An attempt
that resumes from a checkpoint says at which step of the job it goes on; steps after it that the
attempt before had done are done again.
"""

from collections import ChainMap
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.journal import UNATTRIBUTED, Journal
from trainperf.analysis.run.record_file import RecordFile, end_of
from trainperf.analysis.run.replay import Replay
from trainperf.analysis.summary.host_share import host_of
from trainperf.analysis.summary.schema import (
    MOST_RANKS,
    RankEnd,
    RankState,
    Restarts,
    RunFacts,
    State,
)
from trainperf.core.choice import first_that_holds, texts_of
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import duration, plural
from trainperf.core.groups import grouped
from trainperf.core.machine.processes import has_died
from trainperf.core.phases import Gap
from trainperf.core.steps.records import NOT_CLOSED, RunInfo
from trainperf.meters.fold import Fold


SILENT_S = 120.0
"""A run without an end mark that wrote nothing for so long, or for 100 steps, was killed.

On the machine where it ran its process is looked for, and no silence is needed."""


_SILENT_STEPS = 100

_INPUTS = {"training_inputs": "training", "validation_inputs": "validation"}
"""Facts that say nothing of a rank alone, and are other ones in each run."""


def completed_info(info: RunInfo, journal: Journal) -> RunInfo:
    """The header, completed with what was learned while training."""
    return msgspec.structs.replace(
        info,
        notes=info.notes | journal.totals.notes,
        reasons=info.reasons | journal.totals.reasons,
        config=info.config | journal.totals.config,
    )


def run_facts(
    run: Run, replay: Replay, fold: Fold, step_s: float | None, *, now_s: float | None
) -> RunFacts:
    """Facts of the run, from its lowest rank.

    Args:
        run: The opened run directory.
        replay: All of it, read.
        fold: The meters of the rank with the most steps.
        step_s: A mean step.
        now_s: Seconds since 1970; without it a silent run counts as running.
    """
    info, first = run.info, replay.journals[run.ranks[0]]
    complete = completed_info(info, first)
    longest_s = max(SILENT_S, _SILENT_STEPS * (step_s or 0.0))
    ends = rank_ends(run.attempts[-1], replay.journals, now_s, longest_s)
    state = _state_of_run(ends)
    reason = first.end.reason if first.end else "finished"
    most = max(end.steps for end in ends)
    return RunFacts(
        path=run.address,
        name=run.name,
        state=state,
        end_reason=None if reason in ("finished", "interrupted") else reason,
        started_at=run.attempts[0][0].info.started_at,
        attempts=len(run.attempts),
        continues=info.continues,
        ranks=run.ranks,
        world_size=info.world_size,
        device=info.device,
        steps=fold.steps,
        steady_steps=fold.steady_steps,
        window=run.window,
        fit_s=first.fit_ns / 1e9,
        software=info.software,
        hardware=info.hardware,
        config={name: fact for name, fact in complete.config.items() if name not in _INPUTS},
        environment=info.environment,
        # Others may do what the first rank does not; where both do, the first one's note holds.
        notes=dict(ChainMap(complete.notes, *(j.totals.notes for j in replay.journals.values()))),
        same_inputs=_same_inputs(info.world_size, replay.journals.values()),
        faults=first.totals.faults,
        dropped=first.totals.dropped,
        ended_otherwise=tuple(
            end
            for end in ends
            if end.state != state or (end.state not in ("running", "killed") and end.steps < most)
        ),
    )


def _same_inputs(world_size: int, journals: Collection[Journal]) -> tuple[str, ...]:
    """In what every rank of several was given the same; in nothing where one has left no file."""
    if not 1 < world_size == len(journals):
        return ()
    given = {name: {each.totals.config.get(name) for each in journals} for name in _INPUTS}
    return tuple(
        kind for name, kind in _INPUTS.items() if len(given[name]) == 1 and given[name] != {None}
    )


def warnings_of(run: Run, replay: Replay, facts: RunFacts) -> tuple[str, ...]:
    """Sentences for people, none when all is well."""
    journals, since = replay.journals.values(), diverged(replay)
    alike = grouped(((end.state, end.reason), end) for end in facts.ended_otherwise)
    most = max(journal.steps for journal in journals)
    unattributed_s = replay.journals[facts.ranks[0]].ledger_s()[UNATTRIBUTED]
    # While a run is being written its ranks have flushed different steps: nothing is wrong.
    left_out = 0 if facts.state == "running" else replay.left_out
    return texts_of(
        *run.warnings,
        *_missing_ranks(run),
        *(_ending(same, most) for same in alike.values()),
        *(
            f"rank {journal.rank}: {plural(journal.damaged_lines, 'damaged line')} skipped"
            for journal in journals
            if journal.damaged_lines
        ),
        left_out and f"{plural(left_out, 'step')} excluded: not every rank recorded them",
        # By construction it is almost 0.
        abs(unattributed_s) > LIMITS.trifle * facts.fit_s
        and f"{duration(unattributed_s)} of the fit are not covered by any record",
        since and f"the loss is {since}",
        *(f"{part} was switched off: {error}" for part, error in facts.faults.items()),
        *(
            f"{part}: {plural(number, 'measurement')} dropped, a buffer was full"
            for part, number in facts.dropped.items()
        ),
    )


def diverged(replay: Replay) -> str:
    """Since when the loss is NaN or infinite, on the first rank where it is; else empty.

    Of the latest attempt: a restart from a checkpoint may have brought it back.
    """
    notes = (journal.learned.notes.get("loss", "") for journal in replay.journals.values())
    return next(filter(None, notes), "")


def _missing_ranks(run: Run) -> Iterator[str]:
    for files in run.attempts:
        world_size = files[0].info.world_size
        missing = sorted(set(range(world_size)) - {file.rank for file in files})
        attempt = f"attempt {files[0].attempt}: " if len(run.attempts) > 1 else ""
        if missing:
            yield (
                f"{attempt}{len(files)} of {world_size} ranks read (missing: {_first(missing)}): "
                "sums over ranks are too low"
            )


def _first(ranks: Sequence[int]) -> str:
    return ", ".join(map(str, ranks[:MOST_RANKS])) + (", …" if len(ranks) > MOST_RANKS else "")


# How ranks ended.


def rank_ends(
    files: Sequence[RecordFile],
    journals: Mapping[int, Journal],
    now_s: float | None,
    longest_s: float,
) -> list[RankEnd]:
    """How each rank of an attempt ended, in the order of ranks.

    A rank whose process is seen to be gone was killed.  Where it cannot be seen, on another host,
    it was killed if no rank has written for long; one that alone is silent may be waiting.

    Args:
        files: Of the attempt.
        journals: Of each rank.
        now_s: Seconds since 1970; `None` where that is not known: then nobody is silent.
        longest_s: Without a line from a rank that writes them.
    """
    ages_s = [0.0 if now_s is None else now_s - file.modified_s for file in files]
    nobody_writes = min(ages_s) > longest_s
    ends = []
    for file, age_s in zip(files, ages_s, strict=True):
        end = journals[file.rank].end
        died = None if end else has_died(file.info.process)
        state: RankState = first_that_holds(
            (_ENDED.get(end.reason if end else "", "failed"), end),
            ("killed", nobody_writes if died is None else died),
            ("silent", age_s > longest_s),
            ("running", True),
        )
        ends.append(
            RankEnd(
                rank=file.rank,
                host=host_of(file.info),
                state=state,
                reason=end.reason if end and state == "failed" else None,
                steps=journals[file.rank].steps,
                silent_s=age_s if state == "silent" else None,
            )
        )
    return ends


_ENDED: Mapping[str, State] = {
    "finished": "finished",
    "interrupted": "interrupted",
    NOT_CLOSED: "interrupted",
}
"""What an end mark says; an exception has *failed*."""


def _state_of_run(ends: Sequence[RankEnd]) -> State:
    """The lowest rank's, but a run goes on as long as one rank of it does."""
    state, goes_on = ends[0].state, {"running", "silent"} & {end.state for end in ends}
    if state in ("finished", "interrupted", "failed"):
        return state
    return "running" if goes_on else "killed"


_HOW = {
    "finished": "ended",
    "interrupted": "interrupted",
    "failed": "ended by {reason}",
    "silent": "silent for {since}, waiting or stopped",
    "killed": "gone without an end (killed?)",
    "running": "still running",
}
"""How a rank ended, in words."""


def _ending(same: Sequence[RankEnd], most: int) -> str:
    """A sentence for ranks that ended alike, otherwise than the run.

    Args:
        same: Those ranks.
        most: Steps of the rank that came farthest.
    """
    ranks, hosts = _first([end.rank for end in same]), {end.host for end in same}
    where = f" (on {hosts.pop()})" if len(hosts) == 1 and "" not in hosts else ""
    named = f"{len(same)} ranks, {ranks}" if len(same) > 1 else f"rank {ranks}"
    first = "the first " if len(same) > 1 else ""
    since = duration(max(end.silent_s or 0.0 for end in same))
    how = _HOW[same[0].state].format(reason=same[0].reason, since=since)
    fewest = min(end.steps for end in same)
    return f"{named}{where}: {how}, {first}after {fewest:,} of {plural(most, 'step')}"


# Restarts.


def restarts(run: Run, journal: Journal) -> Restarts | None:
    """`None` where there was none, or only a window of the run is read."""
    if len(run.attempts) == 1 or run.window:
        return None
    begins = [files[0].info.totals.get("steps") for files in run.attempts]
    reached = [
        (begin or 0) + end_of(files[0]).step + 1
        for begin, files in zip(begins, run.attempts, strict=True)
    ]
    # Steps of the job that two attempts did, by where each began.
    twice = [
        None if begin is None else max(0, end - begin)
        for end, begin in zip(reached, begins[1:], strict=False)
    ]
    again = None if None in twice else sum(filter(None, twice))
    startups_ns = sum(ns for _, ns in journal.pauses.get(Gap.STARTUP.label, ())[1:])
    step_s = sum(journal.phase_ns) / 1e9 / max(1, journal.steps)
    return Restarts(
        lost_s=journal.ledger_s().get(Gap.RESTART.label, 0.0)
        + startups_ns / 1e9
        + (again or 0) * step_s,
        again_steps=again,
    )
