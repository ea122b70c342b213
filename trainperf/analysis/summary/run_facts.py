"""Facts of a run: its identity, how far it came, how it ended, and warnings about its files."""

import msgspec

from trainperf.analysis.run.alignment import Alignment
from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.journal import UNATTRIBUTED, Journal
from trainperf.analysis.run.replay import Replay
from trainperf.analysis.summary.rank_ends import Silence, rank_ends, sentences, state_of_run, unlike
from trainperf.analysis.summary.schema import RunFacts
from trainperf.analysis.summary.unread import unread_steps
from trainperf.core.formatting.units import count, duration, plural
from trainperf.core.steps.records import RunInfo
from trainperf.meters.fold import Fold


SILENT_S = 120.0
"""A run without an end mark that wrote nothing for so long, or for 100 steps, was killed.

On the machine where it ran its process is looked for, and no silence is needed."""

_SILENT_STEPS = 100

TOLERABLE = 0.01
"""Share of the fit that may be in no record; by construction it is almost 0."""


def completed_info(info: RunInfo, journal: Journal) -> RunInfo:
    """The header, completed with what was learned while training."""
    return msgspec.structs.replace(
        info,
        notes={**info.notes, **journal.totals.notes},
        reasons={**info.reasons, **journal.totals.reasons},
        config={**info.config, **journal.totals.config},
    )


def run_facts(
    run: Run, replay: Replay | Alignment, fold: Fold, step_s: float | None, *, now_s: float | None
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
    silent_s = max(SILENT_S, _SILENT_STEPS * (step_s or 0.0))
    silence = Silence(now_s=now_s, longest_s=silent_s)
    ends = rank_ends(run.attempts[-1], replay.journals, silence)
    state = state_of_run(ends)
    return RunFacts(
        path=run.address,
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
        unread_steps=unread_steps(first),
        window=run.window,
        fit_s=first.fit_ns / 1e9,
        earlier=info.totals,
        software=info.software,
        hardware=info.hardware,
        config=complete.config,
        environment=info.environment,
        notes={**_notes_of_others(replay), **complete.notes},
        faults=first.totals.faults,
        dropped=first.totals.dropped,
        ended_otherwise=unlike(ends, state),
    )


def _notes_of_others(replay: Replay | Alignment) -> dict[str, str]:
    """Notes of all ranks, since others may do what the first does not; the lowest rank's holds."""
    notes: dict[str, str] = {}
    for journal in replay.journals.values():
        notes = {**journal.totals.notes, **notes}
    return notes


def _end_reason(journal: Journal) -> str | None:
    reason = journal.end.reason if journal.end else "finished"
    return None if reason in ("finished", "interrupted") else reason


def warnings_of(run: Run, replay: Replay | Alignment, facts: RunFacts) -> tuple[str, ...]:
    """Sentences for people, none when all is well."""
    warnings = list(run.warnings)
    warnings += _missing_ranks(run)
    most = max(journal.steps for journal in replay.journals.values())
    warnings += sentences(facts.ended_otherwise, most)
    for journal in replay.journals.values():
        if journal.damaged_lines:
            lines = plural(journal.damaged_lines, "damaged line")
            warnings.append(f"rank {journal.rank}: {lines} skipped")
    if facts.unread_steps:
        read = count(facts.steps - facts.unread_steps)
        warnings.append(
            f"medians, shares and rates stand on {read} of {count(facts.steps)} steps, in evenly "
            "spaced stretches; counts and the time of the fit on all (--every-step reads them all)"
        )
    # While a run is being written its ranks have flushed different steps: nothing is wrong.
    if facts.left_out_steps and facts.state != "running":
        steps = plural(facts.left_out_steps, "step")
        warnings.append(f"{steps} excluded: not every rank recorded them")
    unattributed_s = replay.journals[facts.ranks[0]].ledger_s()[UNATTRIBUTED]
    if abs(unattributed_s) > TOLERABLE * facts.fit_s:
        warnings.append(f"{duration(unattributed_s)} of the fit are not covered by any record")
    since = diverged(replay)
    if since:
        warnings.append(f"the loss is {since}")
    warnings += [f"{part} was switched off: {error}" for part, error in facts.faults.items()]
    warnings += [
        f"{part}: {plural(number, 'measurement')} dropped, a buffer was full"
        for part, number in facts.dropped.items()
    ]
    return tuple(warnings)


def diverged(replay: Replay | Alignment) -> str:
    """Since when the loss is NaN or infinite, on the first rank where it is; else empty.

    Of the latest attempt: a restart from a checkpoint may have brought it back.
    """
    notes = (journal.learned.notes.get("loss", "") for journal in replay.journals.values())
    return next(filter(None, notes), "")


def _missing_ranks(run: Run) -> list[str]:
    warnings = []
    for files in run.attempts:
        present, world_size = {file.rank for file in files}, files[0].info.world_size
        missing = sorted(set(range(world_size)) - present)
        if missing:
            attempt = f"attempt {files[0].attempt}: " if len(run.attempts) > 1 else ""
            named = ", ".join(map(str, missing[:8])) + (", …" if len(missing) > 8 else "")
            warnings.append(
                f"{attempt}{len(present)} of {world_size} ranks read (missing: {named}): "
                "sums over ranks are too low"
            )
    return warnings
