"""The sentence on a training whose steps do not end: how long, and what each rank is at."""

from collections.abc import Sequence

from trainperf.analysis.summary.rank_schema import Hang, RanksAt
from trainperf.core.formatting.units import duration, ranks_named, rate


_AT = {
    "collective": "{wait} in {function}{where}",
    "backward": "{wait} in backward{where}, where gradients are reduced",
    "loader": "{wait} for a batch of the loader{where}",
    "answer": "{wait} for the answer of a server in {function}{where}",
    "saving": "{be} saving a checkpoint{where}",
    "stands": "{stand} still in {function}{where}",
    "works": "{be} in {function}{where}",
    "stopped": "{be} stopped by a signal",
    "gone": "{be} gone: no such process",
    "ended": "{have} left the training",
    "silent": "{have} written nothing yet",
}
_WAIT = ("collective", "backward")
"""For others: whoever works meanwhile may come to them, so that it is no hang yet."""
_VERBS = ("wait", "stand")


def hang_sentence(hang: Hang, *, several: bool) -> str:
    """How long no step has ended, and what each rank is at.

    Args:
        hang: What is known of it.
        several: Whether the job has several ranks, which are named.
    """
    lasts = duration(hang.lasts_s)
    step, where = "the fit", "before the first step"
    if hang.step >= 0:
        step = f"step {hang.step:,}"
        where = f"in {step}"
    first = hang.at[0].at
    works = any(each.at in ("works", "silent", "answer") for each in hang.at)
    saves = first == "saving" and all(each.at in ("saving", *_WAIT) for each in hang.at)
    began = f"Hanging for {lasts} {where}"
    if saves:
        began = f"A checkpoint has lasted for {lasts} {where}"
    elif works:
        began = f"No step has ended for {lasts}, since {step} began"
    if hang.over:
        began = f"Hung for {lasts} before it ended, {where}"
    places = "; ".join(_said_of(each, several=several) for each in hang.at)
    numbers = "".join(
        f" Collectives begun in process group {group}: "
        + ", ".join(f"{number:,} on {ranks_named(ranks)}" for number, ranks in sorted(by.items()))
        + "."
        for group, by in hang.sequences.items()
    )
    paged = "".join(
        f" {_named([rank], several=several).capitalize()} reads {rate(bytes_per_s)} of its memory "
        "from a disk (swap or mapped files)."
        for rank, bytes_per_s in hang.paged_bytes_per_s.items()
    )
    starved = ""
    if hang.starved:
        processes = "process" if hang.starved == 1 else "processes"
        starved = f" The system ended {hang.starved:,} {processes} for lack of memory."
    return f"{began}: {places}.{numbers}{paged}{starved}"


def _named(ranks: Sequence[int], *, several: bool) -> str:
    return ranks_named(ranks) if several else "it"


def _said_of(place: RanksAt, *, several: bool) -> str:
    plural = len(place.ranks) > 1
    verbs = {verb: verb if plural else f"{verb}s" for verb in _VERBS}
    verbs |= {"be": "are" if plural else "is", "have": "have" if plural else "has"}
    where = f" ({place.where})" if place.where else ""
    function = place.function or "code that is not the user's"
    at = _AT[place.at].format(**verbs, where=where, function=function)
    how = "with" if place.at == "ended" else f"while {'they handle' if plural else 'it handles'}"
    error = f" {how} {place.error}" if place.error else ""
    return f"{_named(place.ranks, several=several)} {at}{error}"
