"""Detectors of ranks that are given the same, so that all of them do the work of one."""

from trainperf.analysis.diagnosis.account import Claim, StepAccount
from trainperf.analysis.diagnosis.cause import Cause, Use, worth
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import duration, plural


def same_batches(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 no seconds
    """All ranks train on the same batches: their gradients are equal, and the mean is no better.

    By a number for what the model is given in three calls, on each rank.  No step gets faster
    without it: an epoch takes as many times as long as there are ranks, and nothing more is learned
    in it.

    Wrong where: the batches are equal on purpose, as one prompt that each rank answers otherwise,
    or noise that a generator is given beside real samples.
    To confirm: print the indices of a batch on each rank.
    """
    if "training" not in facts.run.same_inputs:
        return None
    ranks = plural(facts.run.world_size, "rank")
    return Cause(
        id="same_batches",
        title=f"all {ranks} train on the same batches",
        evidence=(f"in three calls of the model its inputs were equal on all {ranks}",),
        changes=(Use(change="divide_batches"),),
        severity="high",
        urgent=True,
    )


@worth(LIMITS.worth)
def same_validation(account: StepAccount, facts: Facts) -> Cause | None:
    """Each rank validates all samples: together they could take one part each.

    By a number for what the model is given in its first calls, on each rank.  Removed is what is
    left of the validation without a rank's part of it.

    Wrong where: the first batches alone are the same on all ranks, or each computes something else
    of them.
    To confirm: print how many samples each rank validates: their sum is the dataset's size where
    they are divided.
    """
    if "validation" not in facts.run.same_inputs:
        return None
    spent_s, ranks = account.pauses_s.get("validation", 0.0), facts.run.world_size
    return Cause(
        id="same_validation",
        title=f"each of {plural(ranks, 'rank')} validates the same samples",
        evidence=(
            f"{duration(spent_s)} in {plural(facts.summary.gaps.get('validation', 0), 'pause')}",
            f"in the first calls of the model its inputs were equal on all {plural(ranks, 'rank')}",
        ),
        changes=(Use(change="divide_validation"),),
        claim=Claim(pauses_s={"validation": spent_s * (1 - 1 / ranks)}),
    )
