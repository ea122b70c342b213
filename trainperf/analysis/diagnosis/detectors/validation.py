"""Validation: what in it could be cheaper, by how a batch of it compares with one of training."""

from collections.abc import Iterator

from trainperf.analysis.diagnosis.account import StepAccount
from trainperf.analysis.diagnosis.cause import Use
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.core.findings import LIMITS
from trainperf.core.readings import STEP_MEAN_S, phase_reading


OF_LOGITS = 0.8
"""Of what an evaluation that keeps logits takes beyond its batches: without them two twins took
0.79 of it less, each (`syslog_mlm` and `logline_lm` of the strangers' scripts)."""


def cheaper(account: StepAccount, facts: Facts) -> Iterator[Use]:
    """Changes that shorten a validation without validating less.

    A batch in training has its wait and its forward, the graph included: no more is needed for a
    batch of a validation that is as large.  What it takes beyond that is the validation's own, its
    loader's or that of its lines.  What a smaller batch takes beyond its part of that is what a
    batch costs, whatever is in it.
    """
    batches, size = (facts.number(f"validation_{name}") for name in ("batches", "batch_size"))
    spent_s, number = account.pauses_s.get("validation", 0.0), facts.summary.gaps.get("validation")
    samples = facts.samples_in(facts.value(STEP_MEAN_S) or 0.0) / facts.micro_batches
    needed_s = _needed_s(account, facts)
    if not (batches and size and number and samples and needed_s and spent_s):
        return
    # What could be divided among ranks that do the same is claimed already.
    alike = facts.run.world_size if "validation" in facts.run.same_inputs else 1
    each_s = alike * spent_s / (number * batches)
    lines = facts.summary.lines_in("validation")
    own_s = max(0.0, each_s - needed_s * max(1.0, size / samples))
    loads_s = min(own_s, each_s * (lines.loader_fraction or 0.0))
    workers = facts.cpus or 1
    theirs = facts.settings.get("validation_workers", facts.settings.get("num_workers"))
    hidden = 0.0 if theirs else 1.0 if account.device is not None else 1 - 1 / workers
    logits = bool(facts.settings.get("evaluation_keeps_logits"))
    # Predictions are still made of logits, and gathered.
    lines_s = (own_s - loads_s) * (OF_LOGITS if logits else 1)
    name = lines.owner.name if lines.owner else "what it does beside the model"
    for change, saves_s, values in (
        ("keep_no_logits" if logits else "cheaper_lines", lines_s, {"name": name}),
        ("workers_of_validation", hidden * loads_s, {"number": workers}),
        (
            "larger_validation_batches",
            min(each_s, needed_s) - needed_s * size / samples,
            {"size": int(size), "samples": round(samples)},
        ),
    ):
        if account.share(spent_s * saves_s / each_s, "fit") >= LIMITS.worth:
            yield Use(change=change, values=values, realises=saves_s / each_s)


def _needed_s(account: StepAccount, facts: Facts) -> float:
    """Its wait and its forward; of a device that decides all of a step, which is more."""
    spent_s = sum(facts.value(phase_reading(name)) or 0.0 for name in ("data_wait", "forward"))
    whole_s = spent_s if account.host_decides else facts.value(STEP_MEAN_S) or 0.0
    return whole_s / facts.micro_batches
