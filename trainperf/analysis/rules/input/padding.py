"""Rule about work spent on padding."""

from collections.abc import Mapping

from trainperf.analysis.rules.base import Evidence, setting
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import LIMITS, Finding, amdahl, severity
from trainperf.core.formatting.units import count, share
from trainperf.core.loop_kind import HUGGING_FACE
from trainperf.core.phases import Phase
from trainperf.core.readings import PADDING_FRACTION, STEP_MEAN_S, phase_reading
from trainperf.core.steps.records import EXACT_LENGTHS, LENGTH_BIN


PACKED = "packed_rows"
"""Setting of a run whose batches said that their rows hold several sequences."""
ALIKE = 0.10
"""Share of padding up to which the sequences of a batch are of similar length."""
AROUND = (Phase.DATA_WAIT, Phase.OPTIMIZER, Phase.CALLBACKS, Phase.LOOP)
"""Phases that take as long however many tokens there are, as long as the update is of the same
sequences."""


def padding(evidence: Evidence) -> Finding | None:
    """Many of the tokens that are computed are padding.

    The bound is on effective tokens per second in updates of the same sequences: what is around
    forward and backward stays.  Attention over shorter rows gains more than its tokens: what the
    audit says of it is added.

    Wrong where: padded rows are what the hardware likes: a multiple of 64 may be faster than fewer
    tokens.
    To confirm: `trainperf try --only trimmed_batches --only sorted_batches SCRIPT`, in effective
    tokens.
    """
    summary = evidence.summary
    wasted = summary.value(PADDING_FRACTION)
    # Ordinary batches of unequal documents have 30–66 % (parcae#8).
    if wasted is None or wasted < 0.20 or summary.run.steady_steps < LIMITS.steps:
        return None
    advice, action, quadratic = _remedy(summary)
    squared = attention_share(evidence) if quadratic else 0.0
    lost = lost_to_padding(summary, squared) or 0.0
    return Finding(
        id="padding",
        title=f"{share(wasted)} of the tokens are padding",
        advice=advice,
        evidence=_evidence(summary),
        action=action,
        fraction=lost,
        gain_upper_bound=amdahl(lost),
        confidence="medium",
        severity=severity(lost),
        effort="hours",
        confirm="trainperf compare BEFORE AFTER: more effective tokens/s, padding_fraction near 0",
    )


def lost_to_padding(summary: Summary, squared: float = 0.0) -> float | None:
    """Share of the step that goes with the padding; `None` where the padding was not counted.

    Args:
        summary: Of the run.
        squared: Share of forward and backward in attention, where rows get shorter: rows of
            (1 - wasted) of the length take (1 - wasted)² of its time.
    """
    wasted = summary.value(PADDING_FRACTION)
    if wasted is None:
        return None
    return by_tokens(summary) * (wasted + squared * wasted * (1 - wasted))


def by_tokens(summary: Summary) -> float:
    """Share of the step that grows with its tokens: forward, backward, and what has no phase."""
    step_s = summary.value(STEP_MEAN_S)
    if not step_s:
        return 1.0
    around_s = sum(summary.value(phase_reading(phase.label)) or 0.0 for phase in AROUND)
    return max(0.0, 1 - around_s / step_s)


def attention_share(evidence: Evidence) -> float:
    """Share of the audited operators' time that is attention; 0 without an audit."""
    audit = evidence.documents.audit
    if audit is None:
        return 0.0
    spent = sum(use.host_s for use in audit.operators)
    attends = sum(use.host_s for use in audit.operators if "attention" in use.name)
    return attends / spent if spent else 0.0


def _remedy(summary: Summary) -> tuple[str, str, bool]:
    """What to do first and how, and whether rows get shorter by it."""
    lengths, padded_to = summary.sequence_lengths, setting(summary, "sequence_length")
    if setting(summary, PACKED):
        return (
            "Pack from more sequences at once",
            "fill a row from those of several batches: the more to choose from, the less is left",
            False,
        )
    if not lengths:
        return (
            "Pack the sequences",
            "pack documents into full sequences, or batch those of similar length together",
            True,
        )
    if _sorted_already(summary):
        return (
            "Pad less",
            "pad to the longest sequence of each batch: they are of similar length already",
            True,
        )
    longest = max(lengths)
    capacity = max(padded_to or 0, longest)
    if longest <= 0.75 * capacity:  # even the longest sequence leaves room
        return (
            "Pad less",
            f"pad to the longest of the batch, or to {longest:,} tokens instead of {capacity:,.0f}",
            True,
        )
    if _median(lengths) <= capacity / 2 and not _as_wide_as_the_longest(summary):
        return (
            "Pack the sequences",
            f"put several into one row of {capacity:,.0f} tokens, with attention kept apart",
            False,
        )
    return "Batch sequences of similar length", _grouping(summary), True


def _grouping(summary: Summary) -> str:
    """Code that batches sequences of similar length; a Trainer of Hugging Face has an option."""
    if summary.run.loop is HUGGING_FACE and not summary.run.config.get("group_by_length"):
        newer = not str(summary.run.software.get("transformers", "")).startswith("4.")
        option = 'train_sampling_strategy="group_by_length"' if newer else "group_by_length=True"
        return f"TrainingArguments({option}), and a collator that pads to the longest of the batch"
    return "a batch_sampler that sorts by length within some batches, and padding to the longest"


def _sorted_already(summary: Summary) -> bool:
    """Whether hardly any token is padding in batches as wide as their longest sequence."""
    return 0 < (1 - ALIKE) * summary.longest_tokens <= _tokens(summary.sequence_lengths)


def _as_wide_as_the_longest(summary: Summary) -> bool:
    """Whether each batch is padded to its own longest sequence: then their order is all there is.

    Packing would take another model's input; drawing batches by length takes an option.
    """
    wasted = summary.value(PADDING_FRACTION) or 0.0
    computed = _tokens(summary.sequence_lengths) / (1 - wasted) if wasted < 1 else 0.0
    return 0 < (1 - ALIKE) * computed <= summary.longest_tokens


def _tokens(lengths: Mapping[int, int]) -> float:
    """Effective tokens; sequences of a bin count with its middle, as its edge is beyond them.

    With as many bins as a histogram of bins has at least, each edge that may be that of one is.
    """
    edges = {edge for edge in lengths if edge % LENGTH_BIN == 0}
    beyond = (LENGTH_BIN - 1) / 2 if len(edges) > EXACT_LENGTHS / LENGTH_BIN else 0.0
    return sum(number * (length - beyond * (length in edges)) for length, number in lengths.items())


def _evidence(summary: Summary) -> tuple[str, ...]:
    facts, around = [], 1 - by_tokens(summary)
    useful, every = (summary.value(f"{kind}_tokens_per_s") for kind in ("effective", "padded"))
    if useful is not None and every is not None:
        facts.append(f"{count(round(useful))} of {count(round(every))} tokens/s are effective")
    lengths = summary.sequence_lengths
    if setting(summary, PACKED):
        facts.append("several sequences share a row already")
    elif lengths:
        facts.append(f"longest ≤ {max(lengths):,}, median ≤ {_median(lengths):,} tokens")
    if around >= LIMITS.notable:
        facts.append(f"{share(around)} of the step is the same with fewer tokens")
    return tuple(facts)


def _median(lengths: dict[int, int]) -> int:
    """Upper edge of the bin in which half of the sequences is reached."""
    half, total = sum(lengths.values()) / 2, 0
    for edge in sorted(lengths):
        total += lengths[edge]
        if total >= half:
            return edge
    return max(lengths)
