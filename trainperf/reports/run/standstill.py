"""The sentence on a training whose steps do not end: how long, and what each rank is at."""

from trainperf.analysis.summary.rank_schema import Hang, RanksAt
from trainperf.core.choice import first_that_holds
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


def hang_sentence(hang: Hang, *, several: bool) -> str:
    """How long no step has ended, and what each rank is at.

    Args:
        hang: What is known of it.
        several: Whether the job has several ranks, which are named.
    """
    lasts = duration(hang.lasts_s)
    step = f"step {hang.step:,}" if hang.step >= 0 else "the fit"
    where = f"in {step}" if hang.step >= 0 else "before the first step"
    first = hang.at[0].at
    works = any(each.at in ("works", "silent", "answer") for each in hang.at)
    saves = first == "saving" and all(each.at in ("saving", *_WAIT) for each in hang.at)
    began = first_that_holds(
        (f"Hung for {lasts} before it ended, {where}", hang.over),
        (f"A checkpoint has lasted for {lasts} {where}", saves),
        (f"No step has ended for {lasts}, since {step} began", works),
        (f"Hanging for {lasts} {where}", True),
    )
    places = "; ".join(_said_of(each, several=several) for each in hang.at)
    numbers = "".join(
        f" Collectives begun in process group {group}: "
        + ", ".join(f"{number:,} on {ranks_named(ranks)}" for number, ranks in sorted(by.items()))
        + "."
        for group, by in hang.sequences.items()
    )
    paged = "".join(
        f" {ranks_named([rank]).capitalize() if several else 'It'} reads {rate(bytes_per_s)} of "
        "its memory from a disk (swap or mapped files)."
        for rank, bytes_per_s in hang.paged_bytes_per_s.items()
    )
    processes = "process" if hang.starved == 1 else "processes"
    ended = f" The system ended {hang.starved:,} {processes} for lack of memory."
    return f"{began}: {places}.{numbers}{paged}{ended if hang.starved else ''}"


def _said_of(place: RanksAt, *, several: bool) -> str:
    plural = len(place.ranks) > 1
    verbs = {"wait": "waits", "stand": "stands", "be": "is", "have": "has"}
    if plural:
        verbs = {"wait": "wait", "stand": "stand", "be": "are", "have": "have"}
    where = f" ({place.where})" if place.where else ""
    function = place.function or "code that is not the user's"
    at = _AT[place.at].format(**verbs, where=where, function=function)
    how = "with" if place.at == "ended" else f"while {'they handle' if plural else 'it handles'}"
    error = f" {how} {place.error}" if place.error else ""
    return f"{ranks_named(place.ranks) if several else 'it'} {at}{error}"
