"""Rule about a step from which on all steps take longer."""

from trainperf.analysis.rules.base import Evidence, own_fit_s
from trainperf.analysis.rules.fit.long_term import ALIKE, ChangeTime, action_of, cause_of, in_words
from trainperf.analysis.rules.machine.base import explained
from trainperf.analysis.summary.schema import NewLevel
from trainperf.core.findings import Finding, costs
from trainperf.core.formatting.units import duration, share, words


LEAST = 0.01
"""Share of the fit from which it is worth a finding."""


def slower_since(evidence: Evidence) -> Finding | None:
    """From some step on steps take longer, to the end or until they no longer do (change point).

    The bound is what they all take beyond the level before.  Silent on a machine whose speed
    wanders: the jump must be far larger than the others of the same run.  Silent as well where the
    machine is why, by a finding of its own about the same steps.

    Wrong where: the work itself changed there on purpose, e.g. by a schedule of batch sizes.
    To confirm: the steps after it against those before: trainperf report RUN --steps FIRST:LAST.
    """
    summary, fit_s = evidence.summary, own_fit_s(evidence.summary)
    levels = tuple(level for level in summary.long_term.levels if not _of_machine(level, evidence))
    if not levels or not fit_s:
        return None
    level = max(levels, key=lambda level: level.lost_s)
    lost = level.lost_s / fit_s
    if lost < LEAST:
        return None
    cause = cause_of(level, level.moved, alike=level.alike)
    return Finding(
        id="slower_since",
        title=_longer(level),
        advice=cause.advice,
        evidence=(
            (
                f"change point: a step takes {duration(level.before_s)} before and "
                f"{duration(level.after_s)} after (medians of steady steps)"
            ),
            *in_words(level.moved),
            *_others(levels, level),
        ),
        action=action_of(cause, ChangeTime.at(level.from_step)),
        confirm=f"trainperf report RUN --steps {level.from_step}: shows the phase as before",
        **costs(min(lost, 0.99), confidence=cause.confidence, scope="fit"),
    )


def _of_machine(level: NewLevel, evidence: Evidence) -> bool:
    """Whether another finding says why: a clock, another process, or pressure."""
    last = evidence.summary.run.steps if level.until_step is None else level.until_step
    return explained(evidence, level.from_step, last - 1, level.after_s / level.before_s - 1)


def _when(level: NewLevel) -> str:
    if level.until_step is None:
        return f"from step {level.from_step:,} on steps take"
    return f"steps {level.from_step:,} to {level.until_step - 1:,} take"


def _longer(level: NewLevel) -> str:
    """E.g. `from step 41,200 on steps take 18 % longer: data wait, +9 ms`."""
    rank = "" if level.rank is None else f" on rank {level.rank}"
    what, more_s = f"{words(level.phase)}{rank}", level.phase_s
    if level.alike and not rank:
        what, more_s = ALIKE, level.after_s - level.before_s
    longer = share(level.after_s / level.before_s - 1)
    return f"{_when(level)} {longer} longer: {what}, +{duration(more_s)}"


def _others(levels: tuple[NewLevel, ...], named: NewLevel) -> tuple[str, ...]:
    return tuple(map(_longer, (level for level in levels if level is not named)))[:3]
