"""Rule about activations that are computed twice though there is memory to keep them."""

import msgspec

from trainperf.analysis.rules.base import Evidence, steady_step_s, warm_bound
from trainperf.analysis.rules.memory.base import room_for
from trainperf.analysis.rules.operators.base import audited, place_of, total_s
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import LIMITS, Finding, amdahl, costs
from trainperf.core.formatting.units import duration, share, size
from trainperf.core.loop_kind import HUGGING_FACE
from trainperf.core.readings import PHASE_FORWARD_S


KEPT = 20
"""A block that is not recomputed keeps at most so many times as much: some 17 tensors of the size
of its input without the attention matrix (34 bytes per 16-bit number: Korthikanti et al., arXiv
2205.05198, section 4.1), and a few more."""

SLOWER = 1.2
"""The second forward takes at most so many times as long as the first: it keeps what backward
needs.  Measured: 1.09 in a GPT-2 of six layers on a CPU."""


def recompute(evidence: Evidence) -> Finding | None:
    """Activation checkpointing computes forward a second time, and the memory would do without.

    Lost is that second forward: as the audit timed it, else as long as the first one; the bound has
    a fifth more, as it keeps what the first one does not.  Said only where twenty times what is
    held beyond the model and its update would still fit.

    Wrong where: attention of one's own writes out its scores, which grow with the square of the
    length, or batches that are much longer are still to come.
    To confirm: `trainperf try --only no_checkpointing SCRIPT`; the peak it then has.
    """
    summary, step_s = evidence.summary, steady_step_s(evidence.summary)
    room = room_for(summary, KEPT)
    # Written out, the scores of all blocks outgrow that.
    if room is None or not step_s or summary.run.config.get("attention") == "eager":
        return None
    peak_bytes, capacity_bytes = room
    step = audited(evidence)
    rows = [] if step is None else [row for row in step.operators if row.use.part == "recompute"]
    again_s = total_s(rows)
    if not rows:
        # Without an audit nothing but the model's own word tells; it names no place.
        checkpoints = summary.run.config.get("gradient_checkpointing") is True
        again_s = (summary.value(PHASE_FORWARD_S) or 0.0) if checkpoints and step is None else 0.0
    lost = min(again_s / step_s, 0.5)
    if lost < LIMITS.notable:
        return None
    finding = Finding(
        id="recompute",
        title=f"activations are computed twice, and {share(1 - peak_bytes / capacity_bytes)} of "
        "the memory is free",
        advice="Keep the activations",
        evidence=(
            f"{'' if rows else 'up to '}{duration(again_s)} of {duration(step_s)} per step",
            f"{size(peak_bytes)} of {size(capacity_bytes)} at the peak",
        ),
        action=_action(summary),
        **costs(lost, confidence="medium"),
        where=place_of(rows),
        confirm="phase_backward_s falls; trainperf compare BEFORE AFTER shows the peak, too",
    )
    most = SLOWER * lost
    high = msgspec.structs.replace(finding, fraction=most, gain_upper_bound=amdahl(most))
    # Python sets it up for each block, in forward and in backward.
    return msgspec.structs.replace(warm_bound(high, summary), fraction=lost)


def _action(summary: Summary) -> str:
    if summary.run.loop is HUGGING_FACE:
        return (
            "TrainingArguments(gradient_checkpointing=False), and no "
            "model.gradient_checkpointing_enable()"
        )
    if summary.run.config.get("gradient_checkpointing") is True:
        return "model.gradient_checkpointing_disable()"
    return "no torch.utils.checkpoint around the blocks, or around fewer of them"
