"""Identity of a run, how far it came and how it ended."""

from statistics import fmean

import msgspec

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.journal import Journal
from trainperf.analysis.run.replay import Replay
from trainperf.analysis.summary.schema import RunFacts, State
from trainperf.core.steps.records import NOT_CLOSED, RunInfo
from trainperf.meters.fold import Fold


SILENT_S = 120.0
"""A run without an end mark that wrote nothing for so long, or for 100 steps, was killed."""

_SILENT_STEPS = 100
_ENDINGS: dict[str, State] = {
    "finished": "finished",
    "interrupted": "interrupted",
    NOT_CLOSED: "interrupted",
}


def completed_info(info: RunInfo, journal: Journal) -> RunInfo:
    """The header, completed with what was learned while training."""
    return msgspec.structs.replace(
        info,
        notes={**info.notes, **journal.totals.notes},
        reasons={**info.reasons, **journal.totals.reasons},
        config={**info.config, **journal.totals.config},
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
        now_s: Seconds since 1970; without it a run that lacks an end mark counts as running.
    """
    info, first = run.info, replay.journals[run.ranks[0]]
    complete = completed_info(info, first)
    silent_s = max(SILENT_S, _SILENT_STEPS * (step_s or 0.0))
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
        config=complete.config,
        notes={**_notes_of_others(replay), **complete.notes},
        faults=first.totals.faults,
        dropped=first.totals.dropped,
        paces_s=_paces_s(replay),
    )


def _paces_s(replay: Replay) -> tuple[float, ...]:
    """Of the slowest rank, which the others wait for."""
    paces = [journal.paces_ns for journal in replay.journals.values() if journal.paces_ns]
    slowest = max(paces, key=fmean, default=[])
    return tuple(pace_ns / 1e9 for pace_ns in slowest)


def _state(journal: Journal, *, silent: bool) -> State:
    if journal.end is None:
        return "killed" if silent else "running"
    return _ENDINGS.get(journal.end.reason, "failed")


def _notes_of_others(replay: Replay) -> dict[str, str]:
    """Notes of all ranks, since others may do what the first does not; the lowest rank's holds."""
    notes: dict[str, str] = {}
    for journal in replay.journals.values():
        notes = {**journal.totals.notes, **notes}
    return notes


def _end_reason(journal: Journal) -> str | None:
    reason = journal.end.reason if journal.end else "finished"
    return None if reason in ("finished", "interrupted") else reason
