"""Check that the global batch is the configured one."""

from trainperf.analysis.doctor.base import Case, Outcome, failed, passed, unknown
from trainperf.analysis.rules.base import setting
from trainperf.core.formatting.units import count, plural
from trainperf.core.readings import OPTIMIZER_STEPS_PER_S, SAMPLES_PER_S


FAILS_ON = ("no_sync", "scheduler_per_micro_batch", "data_parallel", "zero_grad")


def accumulation(case: Case) -> Outcome:
    """DDP global batch, accumulation and scheduler steps agree.

    Fails on `no_sync`, `scheduler_per_micro_batch`, `data_parallel` and `zero_grad`, and when the
    samples recorded per update are a quarter or more off batch × micro-batches × ranks.  Unknown
    without sample counts.
    """
    summary = case.summary
    samples, updates = summary.value(SAMPLES_PER_S), summary.value(OPTIMIZER_STEPS_PER_S)
    batch = setting(summary, "batch_size")
    if samples is None or not updates:
        return unknown("samples per step were not counted", case.loop.measures["samples"])
    micro_batches = summary.run.config.get("accumulate_grad_batches") or 1
    # A text says that it changed from update to update.
    if not batch or isinstance(micro_batches, str):
        why = "batch_size or accumulation is unknown, or varies between updates"
        return unknown(why, "load with a DataLoader of a fixed batch_size")
    recorded = samples / updates
    number, ranks = round(float(micro_batches)), summary.run.world_size
    expected = batch * float(micro_batches) * ranks
    micro = f"{number:,} micro-batch{'' if number == 1 else 'es'}"
    evidence = (
        f"{count(expected)} samples per update = batches of {count(float(batch))} × {micro} × "
        f"{plural(ranks, 'rank')}; {count(recorded)} recorded"
    )
    # Short last batches explain less than a quarter, and a forgotten factor is at least two.
    if abs(recorded / expected - 1) > 0.25:
        return failed(
            "make batch_size × accumulation × ranks the batch you mean, and the learning rate's "
            "schedule count updates",
            evidence,
        )
    schedulers = summary.run.config.get("schedulers")
    return passed(evidence, f"{schedulers} steps with the updates" if schedulers else "")
