"""Detectors of padding: tokens that nothing learns from."""

from collections.abc import Mapping

from trainperf.analysis.diagnosis.account import Claim, StepAccount, total_s
from trainperf.analysis.diagnosis.cause import Cause, Use
from trainperf.analysis.diagnosis.detectors.operators import attention_rows
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.core.choice import all_that_hold, first_that_holds, texts_of
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import count, share
from trainperf.core.readings import (
    EFFECTIVE_TOKENS_PER_S,
    PADDED_TOKENS_PER_S,
    PADDING_FRACTION,
)
from trainperf.core.steps.records import EXACT_LENGTHS, LENGTH_BIN


PACKED = "packed_rows"
"""Setting of a run whose batches said that their rows hold several sequences."""

ALIKE = 0.10
"""Share of padding up to which the sequences of a batch are of similar length."""


def padding(account: StepAccount, facts: Facts) -> Cause | None:
    """Many of the tokens that are computed are padding.

    The gain is in effective tokens per second, in updates of the same sequences: what is around
    forward and backward stays.  Attention over shorter rows gains more than its tokens: what the
    audit says of it is added; without one, *at most* has all of forward and backward go by the
    square of the rows.

    Wrong where: padded rows are what the hardware likes: a multiple of 64 may be faster than fewer
    tokens.
    To confirm: `trainperf try --only trimmed_batches --only sorted_batches SCRIPT`, in effective
    tokens.  Rows that are wider than their batch's longest are cut without any other order.
    """
    wasted = facts.value(PADDING_FRACTION)
    # Ordinary batches of unequal documents have 30–66 % (parcae#8).
    if wasted is None or wasted < LIMITS.critical or not account.step_s:
        return None
    slots = ("forward", "backward", "h2d", "other", "between")
    use = _less_padding(facts)
    shorter = use.change not in ("pack_more", "pack_rows")
    reorders = use.change in ("pack_rows", "similar_lengths")
    eager = attention_rows(account.regions)
    attends_s = total_s(r for r in account.regions if r in eager or "attention" in r.use.name)
    squared = attends_s / (total_s(account.regions) or 1.0)
    # A row that holds several sequences stays as long as it is.
    part = wasted + squared * wasted * (1 - wasted) * shorter
    owns_s = {slot: part * account.spent(slot) for slot in slots}
    beyond = min(wasted, _beyond(facts))
    cut = beyond + squared * beyond * (1 - beyond)
    cut_s = account.step_s - cut * account.spent(*slots)
    trimmed = Use(change="pad_to_longest", values=use.values, step_s=cut_s, least_s=cut_s)
    passes_s = account.spent("forward", "backward", "other", "between")
    useful, every = facts.value(EFFECTIVE_TOKENS_PER_S), facts.value(PADDED_TOKENS_PER_S)
    return Cause(
        id="padding",
        title=f"{share(wasted)} of the tokens are padding",
        evidence=texts_of(
            useful is not None
            and every is not None
            and f"{count(round(useful))} of {count(round(every))} tokens/s are effective",
            facts.number(PACKED) and "several sequences share a row already",
            facts.summary.lengths_in_words,
        ),
        changes=(*all_that_hold((trimmed, beyond >= LIMITS.notable and reorders)), use),
        claim=Claim(
            owns_s=owns_s,
            removes_s=sum(owns_s.values()),
            at_most_s=wasted * (2 - wasted) * passes_s if shorter and not account.regions else None,
            shrinks=part,
        ),
        confidence="medium",
    )


def _beyond(facts: Facts) -> float:
    """Share of the tokens by which rows are wider than the longest of their batch."""
    wasted, tokens = facts.value(PADDING_FRACTION) or 0.0, _tokens(facts.summary.sequence_lengths)
    every, widest = tokens / max(1 - wasted, 1e-9), facts.summary.longest_tokens
    return max(0.0, 1 - widest / every) if every and widest else 0.0


def _less_padding(facts: Facts) -> Use:
    """What to do first."""
    lengths, wasted = facts.summary.sequence_lengths, facts.value(PADDING_FRACTION) or 0.0
    tokens, longest = _tokens(lengths), max(lengths, default=0)
    capacity = max(facts.number("sequence_length") or 0, longest)
    widest = facts.summary.longest_tokens
    # Each batch is padded to its own longest sequence already: their order is all there is.
    in_order = 0 < (1 - ALIKE) * tokens / max(1 - wasted, 1e-9) <= widest
    change = first_that_holds(
        # No loader can sort the answers of a policy.
        ("no_straggling_answer", facts.summary.answers),
        ("pack_more", facts.number(PACKED)),
        ("pack", not lengths),
        # Hardly any token is padding in batches as wide as their longest: lengths are alike.
        ("pad_to_longest", 0 < (1 - ALIKE) * widest <= tokens),
        # Even the longest sequence leaves room.
        ("pad_less", longest <= 0.75 * capacity),
        ("pack_rows", 0 < facts.summary.median_length <= capacity / 2 and not in_order),
        ("similar_lengths", True),
    )
    return Use(change=change, values={"longest": longest, "capacity": round(capacity)})


def _tokens(lengths: Mapping[int, int]) -> float:
    """Effective tokens; sequences of a bin count with its middle, as its edge is beyond them."""
    edges = {edge for edge in lengths if edge % LENGTH_BIN == 0}
    beyond = (LENGTH_BIN - 1) / 2 if len(edges) > EXACT_LENGTHS / LENGTH_BIN else 0.0
    return sum(number * (length - beyond * (length in edges)) for length, number in lengths.items())
