"""A change that was tried and was faster, though no rule saw what it mends."""

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.measured import advice_of, gain_of, line_to_write, sentence
from trainperf.core.findings import Finding, severity


def measured_change(evidence: Evidence) -> Finding | None:
    """A change was tried and was faster, and no other finding advises it.

    The gain is the measured one, in this training; further ones are in the evidence.

    Wrong where: the training of later epochs has other batches than those it was tried on.
    To confirm: make the change; `trainperf prove` with the training before it and after it.
    """
    trials = evidence.documents.trials
    advised = {finding.id for finding in evidence.summary.findings}
    faster = [
        trial
        for trial in (trials.trials if trials is not None else ())
        if trial.kind == "change"
        and trial.verdict == "faster"
        and trial.speedup
        and not trial.parts
        and not advised.intersection(trial.rules)
    ]
    if not faster:
        return None
    best = max(faster, key=lambda trial: trial.speedup or 1.0)
    gain = gain_of(best)
    saved = 1 - 1 / gain.speedup
    return Finding(
        id="measured_change",
        title=f"{best.title} makes this training faster",
        advice=advice_of(best),
        evidence=tuple(sentence(trial, evidence.documents.trials_from) for trial in faster),
        action=line_to_write(best),
        fraction=1 - 1 / gain.high,
        gain_upper_bound=gain.high,
        measured_gain=gain,
        severity=severity(saved),
        confirm="trainperf prove with the script as it is and with this line",
    )
