"""Check that the global batch is the configured one."""

from trainperf.analysis.doctor.base import Case, Outcome, failed, passed, unknown
from trainperf.analysis.rules.base import setting
from trainperf.analysis.summary.schema import Summary
from trainperf.core.formatting.units import count, plural
from trainperf.core.readings import OPTIMIZER_STEPS_PER_S, SAMPLES_PER_S


FAILS_ON = ("no_sync", "scheduler_per_micro_batch", "data_parallel", "zero_grad")

APART = 0.25
"""Relative difference of configured and recorded samples: short last batches explain less, and a
factor that was forgotten is at least two."""


def accumulation(case: Case) -> Outcome:
    """DDP global batch, accumulation and scheduler steps agree.

    Fails on `no_sync`, `scheduler_per_micro_batch`, `data_parallel` and `zero_grad`, and when the
    samples recorded per update are a quarter or more off batch × micro-batches × ranks.  Unknown
    without sample counts.
    """
    summary = case.summary
    recorded, product = _recorded(summary), _configured(summary)
    if recorded is None:
        why = "the samples of a step were not counted"
        return unknown(why, case.loop.measures["samples"])
    if product is None:
        evidence = "batch_size or accumulation is unknown, or varies between updates"
        return unknown(evidence, "load with a DataLoader of a fixed batch_size")
    meant = product[0] * product[1] * product[2]
    evidence = (
        f"{count(meant)} samples per update = batches of {count(product[0])} × "
        f"{_micro(round(product[1]))} × {plural(round(product[2]), 'rank')}; "
        f"{count(recorded)} recorded"
    )
    if abs(recorded / meant - 1) > APART:
        return failed(
            "make batch_size × accumulation × ranks the batch you mean, and the learning rate's "
            "schedule count updates",
            evidence,
        )
    return passed(evidence, _scheduled(summary))


def _recorded(summary: Summary) -> float | None:
    """Samples of a mean update, over all ranks."""
    samples, updates = summary.value(SAMPLES_PER_S), summary.value(OPTIMIZER_STEPS_PER_S)
    return samples / updates if samples is not None and updates else None


def _configured(summary: Summary) -> tuple[float, float, float] | None:
    """Batch size, micro-batches in an update, ranks."""
    batch = setting(summary, "batch_size")
    if not batch:
        return None
    micro = summary.run.config.get("accumulate_grad_batches") or 1
    if isinstance(micro, str):  # it changed from update to update
        return None
    return float(batch), float(micro), float(summary.run.world_size)


def _scheduled(summary: Summary) -> str:
    schedulers = summary.run.config.get("schedulers")
    return f"{schedulers} steps with the updates" if schedulers else ""


def _micro(number: int) -> str:
    return "1 micro-batch" if number == 1 else f"{number:,} micro-batches"
