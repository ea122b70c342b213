"""Check that throughput is in a unit that counts useful work."""

from trainperf.analysis.doctor.base import Case, Outcome, failed, passed, reason, unknown
from trainperf.analysis.rules.base import setting
from trainperf.core.formatting.units import count, share
from trainperf.core.readings import (
    EFFECTIVE_TOKENS_PER_S,
    OPTIMIZER_STEPS_PER_S,
    PADDING_FRACTION,
    SAMPLES_PER_S,
)


def throughput_unit(case: Case) -> Outcome:
    """Throughput is effective tokens/s or the right unit.

    Fails for sequences without a mask, and when only updates are counted.  Unknown without steps.
    """
    summary = case.summary
    effective, padded = summary.value(EFFECTIVE_TOKENS_PER_S), summary.value(PADDING_FRACTION)
    samples, updates = summary.value(SAMPLES_PER_S), summary.value(OPTIMIZER_STEPS_PER_S)
    if effective is not None:
        mask = summary.run.notes.get("tokens", "mask")
        less = "" if padded is None else f"padding of {share(padded)} is not counted"
        return passed(f"{count(round(effective))} effective tokens/s ({mask})", less)
    length = setting(summary, "sequence_length")
    if length is not None:
        return failed(
            f"{case.loop.tokens} says which tokens count",
            f"sequences of {count(length)} tokens, but no mask: padding would count as work",
        )
    if samples is not None:
        return passed(f"{count(samples)} samples/s; the batch has no known tokens")
    if updates is None:
        return unknown(reason(summary, SAMPLES_PER_S), "train past the warm-up")
    return failed(
        f"make samples the batch's first dimension, or {case.loop.tokens}",
        f"only updates are counted, {count(updates)}/s: they grow when batches shrink",
    )
