"""Rule about pauses that get longer, e.g. checkpoints that grow."""

from trainperf.analysis.rules.base import Evidence, own_fit_s
from trainperf.core.findings import Finding, costs
from trainperf.core.formatting.units import duration, plural, words
from trainperf.core.phases import Gap


LEAST = 0.01
"""Share of the fit that is lost to their growth from which it is worth a finding."""

_ADVICE = {
    Gap.CHECKPOINT.label: (
        "Keep what grows out of the checkpoint",
        (
            "compare the sizes of two checkpoint files: keep no lists of outputs in them, "
            "and see whether the disk gets full or slow"
        ),
    ),
    Gap.EPOCH_BOUNDARY.label: (
        "Clear what epochs gather",
        (
            "look for a list that keeps every step's output, and for a log file that is "
            "rewritten at each epoch's end"
        ),
    ),
}
_OTHERWISE = ("Find what grows in it", "look for what it goes through as a whole every time")


def growing_pauses(evidence: Evidence) -> Finding | None:
    """Pauses of one kind get longer: the last quarter takes 1.5 times the first, or more.

    The bound is what they take beyond the first ones.

    Wrong where: what is saved or validated grows on purpose.
    To confirm: the sizes of two checkpoint files, or the batches of two validations.
    """
    summary, fit_s = evidence.summary, own_fit_s(evidence.summary)
    pauses = summary.long_term.pauses
    if not pauses or not fit_s:
        return None
    pause = max(pauses, key=lambda pause: pause.lost_s)
    lost = pause.lost_s / fit_s
    if lost < LEAST:
        return None
    advice, action = _ADVICE.get(pause.gap, _OTHERWISE)
    return Finding(
        id="growing_pauses",
        title=f"pauses for {words(pause.gap)} get longer: {duration(pause.begins_s)} at first, "
        f"{duration(pause.ends_s)} at last",
        advice=advice,
        evidence=(
            f"{plural(pause.number, 'pause')}: {duration(pause.lost_s)} more than without growth",
        ),
        action=action,
        confirm="pauses at the end of the run take what they took at its begin",
        **costs(min(lost, 0.99), scope="fit"),
    )
