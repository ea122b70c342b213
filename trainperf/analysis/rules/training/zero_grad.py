"""Rule about gradients that are never zeroed."""

from trainperf.analysis.rules.base import Evidence
from trainperf.core.findings import Finding


def zero_grad(evidence: Evidence) -> Finding | None:
    """Between two updates no gradient was zeroed: every update follows all batches so far.

    It costs no time.  It spoils what is learned, so it comes before what is merely slow.

    Wrong where: the loop zeroes gradients only from a later update on: the first two are looked at.
    To confirm: print a gradient's norm before the first backward of a step: it is 0, or there is no
    gradient yet, where they are zeroed.
    """
    if evidence.summary.run.config.get("gradients_zeroed") is not False:
        return None
    return Finding(
        id="zero_grad",
        title="gradients are never zeroed: each update follows the sum of all batches so far",
        advice="Zero the gradients",
        evidence=("between the first updates the gradient was only ever added to",),
        action="optimizer.zero_grad() once per update, before the first backward of the step",
        severity="high",
        urgent=True,
        confirm="this finding is gone, and the loss falls as it should",
    )
