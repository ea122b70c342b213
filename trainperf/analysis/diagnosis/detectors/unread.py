"""Detector of what a loader makes and no operator of the step reads."""

from collections import Counter

from trainperf.analysis.diagnosis.account import Claim, StepAccount
from trainperf.analysis.diagnosis.cause import Cause, Use
from trainperf.analysis.diagnosis.detectors.loader import lost_to_loader_s
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.diagnosis.workers import sampled_workers
from trainperf.analysis.summary.lines import FEWEST_SAMPLES
from trainperf.core.artifacts.lines import WORKER_MAKING, Place
from trainperf.core.choice import texts_of
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import duration, plural, share, size
from trainperf.core.groups import counted
from trainperf.core.stats.quantiles import wilson


def unread_fields(account: StepAccount, facts: Facts) -> Cause | None:
    """Steps wait for a loader that makes fields of which no operator of the step reads a value.

    Columns that are decoded and not used, a second view, a depth map.  Seen in one audited step, in
    all of its batches.  Removed is the part of the making that samples saw at lines that compute
    such a field and nothing else, as far as steps wait for it.  Where no line tells, and such
    fields are most of a batch's bytes, that is said, and no gain is promised.

    Wrong where: another step, a metric, a validation, NumPy, or a kernel that is no operator of
    torch reads it.
    To confirm: `trainperf prove` with a dataset that leaves it out, and the same loss.
    """
    audit, loader, lost_s = facts.documents.audit, account.loader, lost_to_loader_s(account)
    if audit is None or loader is None or account.share(lost_s) < account.least:
        return None
    alone = not loader.workers
    at_us, samples = _made_at(facts, "data_wait" if alone else WORKER_MAKING)
    own_us = Counter({place: us for place, us in at_us.items() if place.makes in audit.unread})
    part = own_us.total() / max(1, at_us.total())
    making_s = loader.making_s / (loader.workers or 1)
    removes_s = min(lost_s, part * making_s)
    tells = account.share(removes_s) >= account.least and samples >= FEWEST_SAMPLES
    heavy = sum(audit.unread.values()) > LIMITS.mostly * audit.batch_bytes
    if not tells and (own_us or not heavy):
        return None
    mine = [path for path in audit.unread if not tells or path in {at.makes for at in own_us}]
    others = f" and {plural(len(mine) - 1, 'other field')}" if len(mine) > 1 else ""
    name, where = f"batch{mine[0]}{others}", max(own_us, key=own_us.__getitem__, default=None)
    in_all = f"{size(sum(audit.unread[path] for path in mine))} of {size(audit.batch_bytes)}"
    return Cause(
        id="unread_fields",
        title=f"{share(part)} of making a batch computes {name}, which no operator of the step "
        "reads"
        if tells
        else f"no operator of the step reads {name}, most of the batch",
        evidence=texts_of(
            f"in the one step that was looked at {in_all} of a batch were not read",
            tells and f"{share(part)} of {samples} samples were at lines that compute nothing else",
            f"{duration(lost_s)} of {duration(account.step_s)} per step are lost to the loader",
        ),
        changes=(Use(change="leave_out_fields", values={"name": name}),),
        claim=Claim(
            owns_s={"data_wait": removes_s},
            removes_s=removes_s,
            at_most_s=min(lost_s, wilson(part, samples)[1] * making_s),
            device={} if account.device is None else {"data_s": removes_s},
        )
        if tells
        else None,
        where=f"{where.file}:{where.line}" if tells and where else "",
        confidence="medium" if tells else "low",
        severity=None if tells else "low",
        bounded=alone or account.device is not None,  # else workers take CPUs from the model
    )


def _made_at(facts: Facts, slot: str) -> tuple[Counter[Place], int]:
    """Outermost lines that make a field of a sample to microseconds; nowhere for all the rest.

    And the number of samples: none where they are of several loaders.
    """
    lines, workers = facts.documents.lines, slot == WORKER_MAKING
    if lines is None or (workers and sampled_workers(facts) is None):
        return Counter(), 0
    makers = [
        next((lines.places[at] for at in stack.frames if at >= 0 and lines.places[at].makes), None)
        for stack in lines.stacks
    ]
    samples = [
        (makers[sample.stack] or Place("", 0, ""), sample.stands_for_us)
        for sample in lines.samples
        if (stack := lines.stacks[sample.stack]).slot == slot
        and (workers or stack.loads is not False)
    ]
    return counted(samples), len(samples)
