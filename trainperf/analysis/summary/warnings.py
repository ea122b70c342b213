"""Warnings about a run's files: what to know before trusting its numbers."""

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.journal import UNATTRIBUTED
from trainperf.analysis.run.replay import Replay
from trainperf.analysis.summary.schema import RunFacts
from trainperf.core.formatting.units import duration, plural


TOLERABLE = 0.01
"""Share of the fit that may be in no record; by construction it is almost 0."""


def warnings_of(run: Run, replay: Replay, facts: RunFacts) -> tuple[str, ...]:
    """Sentences for people, none when all is well."""
    warnings = list(run.warnings)
    warnings += _missing_ranks(run)
    for journal in replay.journals.values():
        if journal.damaged_lines:
            lines = plural(journal.damaged_lines, "damaged line")
            warnings.append(f"rank {journal.rank}: {lines} skipped")
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


def diverged(replay: Replay) -> str:
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
