"""Detectors of trainings that are wrong: gradients, modes, schedules."""

import re

from trainperf.analysis.diagnosis.account import StepAccount
from trainperf.analysis.diagnosis.cause import Cause, Use
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.core.choice import texts_of
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import count, times


def zero_grad(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 no seconds
    """Between two updates no gradient was zeroed: every update follows all batches so far.

    It costs no time.  It spoils what is learned, so it comes before what is merely slow.

    Wrong where: the loop zeroes gradients only from a later update on: the first two are looked at.
    To confirm: print a gradient's norm before the first backward of a step: it is 0, or there is no
    gradient yet, where they are zeroed.
    """
    if facts.settings.get("gradients_zeroed") is not False:
        return None
    return Cause(
        id="zero_grad",
        title="gradients are never zeroed: each update follows the sum of all batches so far",
        evidence=("between the first updates the gradient was only ever added to",),
        changes=(Use(change="zero_grad"),),
        severity="high",
        urgent=True,
    )


def scheduler_per_micro_batch(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001
    """The scheduler steps with every micro-batch, or more than once an update.

    Nothing gets faster without it: the learning rate is not what was asked for, so the run ends
    with another loss.  On several ranks Accelerate steps a schedule that it has prepared once for
    each of them: what looks like that is left alone.

    Wrong where: the schedule was written for micro-batches, its length included.
    To confirm: print the learning rate at the end of an epoch, and hold it against the one you
    planned.
    """
    stepped, updates = facts.number("scheduler_steps"), facts.number("updates")
    passes = facts.number("micro_batches")
    if stepped is None or not updates or passes is None or updates < LIMITS.steps:
        return None
    fast, ranks = stepped / updates, facts.run.world_size
    for_each_rank = ranks > 1 and abs(fast - ranks) <= LIMITS.notable * ranks
    # One is right, and less is a schedule by the epoch.
    if fast < 1.5 or (for_each_rank and "accelerate" in facts.run.software):
        return None
    return Cause(
        id="scheduler_per_micro_batch",
        title=f"the learning-rate schedule runs {times(fast)} as fast as the updates",
        evidence=(
            (
                f"{facts.settings.get('schedulers') or 'the scheduler'}: {count(stepped)} steps in "
                f"{count(updates)} updates"
            ),
            f"{count(passes)} micro-batches make these updates",
        ),
        changes=(
            Use(
                change="schedule_per_update"
                if abs(stepped - passes) <= LIMITS.notable * passes
                else "schedule_once"
            ),
        ),
        severity="high",
        urgent=True,
    )


def train_mode(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 no seconds
    """An inference loop's model was not put into eval mode, and its answers depend on that.

    Dropout drops, and batch norm follows the batch and moves its running statistics.  It is wrong
    before it is slow: so no gain is promised.

    Wrong where: dropout is wanted in answers, as for Monte Carlo dropout.
    To confirm: the same request twice, next to other requests: both answers are equal in eval mode.
    """
    kinds = None if facts.loop.trains else facts.settings.get("train_mode")
    if not kinds:
        return None
    return Cause(
        id="train_mode",
        title="the model answers in train mode: the same request gets other answers",
        evidence=texts_of(
            f"in train mode: {kinds}",
            facts.settings.get("answers_drawn") is True and "the answers depend on random numbers",
        ),
        changes=(Use(change="eval_mode"),),
        severity="high",
        urgent=True,
    )


def dropout_left_on(account: StepAccount, facts: Facts) -> Cause | None:  # noqa: ARG001 no seconds
    """A model in eval mode drops at random for its answers: `eval()` does not reach it.

    `F.dropout(x)` drops by default, whatever the mode is.  A model that samples on purpose, as a
    generator of text or images does, draws from other operators: the audited step tells.

    Wrong where: the dropout is wanted in answers, as for Monte Carlo dropout.
    To confirm: the same request twice: the answers differ.
    """
    settings, names = facts.settings, [use.name for use in facts.uses]
    # Fused attention drops inside: where nothing else draws, it is what drew.
    fuses = any(map(_FUSES.search, names)) and not any(map(_SAMPLES.search, names))
    drops = fuses or any(map(_DROPS.search, names))
    if settings.get("train_mode") or settings.get("answers_drawn") is not True or not drops:
        return None
    part = str(settings.get("answers_drawn_in") or "")
    return Cause(
        id="dropout_left_on",
        title="dropout is left on in eval mode" + (f", in {part}" if part else ""),
        evidence=("the random generator moved in a forward, and no module is in train mode",),
        changes=(Use(change="dropout_by_mode"),),
        where=str(settings.get("answers_drawn_at") or ""),
        confidence="medium",
        severity="high",
        urgent=True,
    )


_DROPS = re.compile("dropout|bernoulli")
_FUSES = re.compile("scaled_dot_product|attention")
_SAMPLES = re.compile("multinomial|rand|normal|uniform|exponential|poisson")
"""Operators that drop, that may drop inside, and that draw for another purpose."""
