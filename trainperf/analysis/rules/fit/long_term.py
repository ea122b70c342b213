"""Causes of a change over a run, by the phase that changed and what moved with it."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from trainperf.analysis.summary.schema import Moved
from trainperf.core.findings import Level
from trainperf.core.formatting.units import duration, share, size


_BATCHES = ("tokens_padded", "h2d_bytes", "samples")
_HOST = ("pace_ns", "waited_ns")

_NAMES = {
    "tokens_padded": "tokens of a batch",
    "h2d_bytes": "bytes of a batch",
    "samples": "samples of a batch",
    "pace_ns": "a fixed piece of Python",
    "waited_ns": "waiting for a processor",
    "gc_ns": "garbage collection per step",
    "tail_ns": "the all-reduce tail",
    "data_stall_ns": "device idle for data",
    "owned_bytes": "memory in use",
    "allocated_bytes": "device memory of tensors",
    "cache_keys": "distinct shapes and graphs",
    "overhead_ns": "trainperf itself",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeCause:
    """What to do about it first."""

    advice: str
    action: str
    """With `{since}` for when it was, and `{across}` for what to compare: see `ChangeTime`."""
    confidence: Level


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeTime:
    """When a change was, as phrases of a sentence."""

    since: str
    across: str

    @classmethod
    def at(cls, step: int) -> "ChangeTime":
        """From a step on."""
        return cls(since=f"from step {step:,} on", across=f"before and after step {step:,}")


BIT_BY_BIT = ChangeTime(since="over the run", across="at its beginning and at its end")


_BY_PHASE = {
    "data_wait": ChangeCause(
        advice="Look at the data that is read from there on",
        action="time the loader alone on the shards or files read {since}: another storage, larger "
        "or compressed files, a full cache",
        confidence="high",
    ),
    "callbacks": ChangeCause(
        advice="Find the hook that does more",
        action="see which hooks and loggers were switched on, or write a growing file, {since}",
        confidence="high",
    ),
    "loop": ChangeCause(
        advice="Find what the loop does more",
        action="see which loggers write a growing file, and which rank the others wait for, "
        "{since}",
        confidence="medium",
    ),
}
MACHINE = ChangeCause(
    advice="Look at the machine, not at the code",
    action="see what else ran there {since}, and the clocks, the power and the temperature of its "
    "processors",
    confidence="medium",
)
_LARGER = ChangeCause(
    advice="See why batches got larger",
    action="compare the batches {across}: longer sequences, another data set, a schedule of the "
    "batch size",
    confidence="high",
)
OTHERWISE = ChangeCause(
    advice="See what changed there",
    action="capture a trace {across}, and compare the two",
    confidence="medium",
)


class InPhase(Protocol):
    """A change that is in a phase."""

    @property
    def phase(self) -> str:
        """Its label."""
        ...


ALIKE = "forward, backward and optimizer alike"
"""What grows where the machine is slower, or the batch larger: no single phase."""


def action_of(cause: ChangeCause, when: ChangeTime) -> str:
    """What to do about a change at that time."""
    return cause.action.format(since=when.since, across=when.across)


def cause_of(change: InPhase, moved: Iterable[Moved], *, alike: bool = False) -> ChangeCause:
    """By what moved along, else by whether all phases did, else by the phase."""
    facts = {each.fact for each in moved}
    if facts & {*_BATCHES} and change.phase != "data_wait":
        return _LARGER
    if facts & {*_HOST} or alike:
        return MACHINE
    return _BY_PHASE.get(change.phase, OTHERWISE)


def in_words(moved: Iterable[Moved]) -> tuple[str, ...]:
    """What moved along, each with its growth; waits for ranks and for data say it again."""
    said_again = ("tail_ns", "data_stall_ns", "overhead_ns")
    return tuple(
        f"{_NAMES[each.fact]} grew with it: {_amount(each.fact, each.before)} to "
        f"{_amount(each.fact, each.after)} (+{share(each.after / each.before - 1)})"
        for each in moved
        if each.fact not in said_again
    )


def _amount(fact: str, value: float) -> str:
    if fact.endswith("_ns"):
        return duration(value / 1e9)
    return size(value) if fact.endswith("_bytes") else f"{value:,.0f}"
