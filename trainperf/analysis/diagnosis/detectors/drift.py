"""Detector of changes over time: steps that become slower."""

from collections.abc import Collection
from dataclasses import replace
from math import inf

from trainperf.analysis.diagnosis.account import WORK, Claim, StepAccount
from trainperf.analysis.diagnosis.cause import Cause, Use, worth
from trainperf.analysis.diagnosis.detectors.lines import sampled
from trainperf.analysis.diagnosis.detectors.memory import gathering
from trainperf.analysis.diagnosis.facts import Facts, slows
from trainperf.analysis.summary.schema import CauseFacts, Moved, RunChange
from trainperf.core.choice import first_that_holds, texts_of
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import (
    count,
    duration,
    share,
    size,
    words,
)
from trainperf.core.readings import MEMORY_PEAK_BYTES


_MOVED = {
    "tokens_padded": "tokens of a batch",
    "h2d_bytes": "bytes of a batch",
    "samples": "samples of a batch",
    "pace_ns": "a fixed piece of Python",
    "waited_ns": "waiting for a processor",
    "gc_ns": "garbage collection per step",
    "owned_bytes": "memory in use",
    "allocated_bytes": "device memory of tensors",
    "cache_keys": "distinct shapes and graphs",
}
"""What grows along with a step, but for waits for ranks and for data, which say it again."""

_ALIKE = "forward, backward and optimizer alike"


@worth(LIMITS.worth / 5)
def slower_since(account: StepAccount, facts: Facts) -> Cause | None:
    """Later steps take longer than earlier ones.

    From a step on (change point, also one that ends again), or bit by bit over the run.  Removed is
    what they take beyond those before.  What lost most is told of, the others next to it.  Silent
    on a machine whose speed wanders, and where the machine was seen to be why.  Where the device's
    memory became full with it, that is why: its driver moves pages, or its allocator starts over.

    Wrong where: the work changed on purpose, e.g. by a curriculum or a schedule of batch sizes:
    what moves along says so.
    To confirm: trainperf report RUN --steps of the steps before and of those after, phase by phase.
    """
    changes = [
        _level(change, facts) if change.from_step else _drift(change, facts)
        for change in facts.summary.long_term
        if not change.from_step or not _of_the_machine(change, facts)
    ]
    worst = max(changes, key=lambda each: account.part_of(each.claim or Claim()), default=None)
    if worst is None:
        return None
    others = [each.title for each in changes if each is not worst]
    return replace(worst, evidence=(*worst.evidence, *others[:3]))


def _slower(
    change: RunChange,
    facts: Facts,
    does: str,
    title: str,
    evidence: tuple[str, ...],
    where: str = "",
    **values: str,
) -> Cause:
    """One way in which what comes later takes longer than what came before.

    Args:
        change: That way.
        facts: Of the run.
        does: The change of the catalogue.
        title: What grew, by how much.
        evidence: Numbers.
        where: The line.
        values: For the words of the change of the catalogue.
    """
    return Cause(
        id="slower_since",
        title=title + (", as the device's memory became full" if _filled(change, facts) else ""),
        evidence=evidence,
        changes=(Use(change=does, values=values),),
        claim=Claim(pauses_s={"slower_since": change.lost_s}),
        where=where,
        confidence="high"
        if does in ("larger_batches", "slower_data", "hook_does_more")
        else "medium",
    )


def _of_the_machine(level: RunChange, facts: Facts) -> bool:
    """Whether the machine was seen to make these steps as much longer."""
    end, slower = level.until_step or facts.run.steps, level.ends_s / level.begins_s - 1
    return any(
        _steps_between(cause, level.from_step, end) >= LIMITS.regular * (end - level.from_step)
        for cause in facts.machine_causes
        if slows(cause) and (cause.slower or 0.0) >= LIMITS.regular * slower
    )


def _steps_between(cause: CauseFacts, first: int, end: int) -> float:
    """Steps in which it was there: it may have come and gone, as often here as anywhere."""
    between = min(end, cause.last_step + 1) - max(first, cause.first_step)
    return between * cause.steps / (cause.last_step - cause.first_step + 1)


def _level(level: RunChange, facts: Facts) -> Cause:
    """From a step on."""
    when = (
        f"from step {level.from_step:,} on steps take"
        if level.until_step is None
        else f"steps {level.from_step:,} to {level.until_step - 1:,} take"
    )
    what, begins_s, ends_s = _what_grew(level)
    return _slower(
        level,
        facts,
        _changed(level, facts),
        title=f"{when} {share(level.ends_s / level.begins_s - 1)} longer: {what}, "
        f"+{duration(ends_s - begins_s)}",
        evidence=(
            (
                f"change point: a step takes {duration(level.begins_s)} before and "
                f"{duration(level.ends_s)} after (steady steps)"
            ),
            *_along(level.moved),
            *_used(level, facts),
        ),
        name="",
        since=f"from step {level.from_step:,} on",
        across=f"before and after step {level.from_step:,}",
    )


def _drift(drift: RunChange, facts: Facts) -> Cause:
    """Bit by bit: something gathers, or is read or written as a whole."""
    line = facts.owner_of_phase(drift.phase)
    holder = next((each for each in gathering(facts) if each.name), None)
    logger = facts.settings.get("loggers") if drift.phase == "loop" else None
    changed = _changed(drift, facts)
    change = first_that_holds(
        ("clear_what_gathers", holder),
        (changed, changed in ("slower_machine", "larger_batches", "leave_room")),
        ("find_what_gathers", drift.phase == "data_wait" and facts.waits_in_own_code),
        (_GATHERING.get(drift.phase, changed), True),
    )
    names = texts_of(holder and holder.name, logger, line and line.name, words(drift.phase))
    what, begins_s, ends_s = _what_grew(drift)
    return _slower(
        drift,
        facts,
        change,
        title=f"steps get slower all the time: {what}{',' if what == _ALIKE else ' grows'} from "
        f"{duration(begins_s)} to {duration(ends_s)} per step",
        evidence=(
            (
                f"a step takes {duration(drift.begins_s)} at first and {duration(drift.ends_s)} at "
                f"last: {share(drift.ends_s / drift.begins_s - 1)} longer"
            ),
            *((f"Lightning calls its logger in the loop: {logger}",) if logger else ()),
            *_along(drift.moved),
            *_used(drift, facts),
            *sampled(line),
            *(
                (f"{holder.kind} {holder.name} holds {count(holder.count)} tensors or arrays",)
                if holder
                else ()
            ),
        ),
        name=names[0],
        since="over the run",
        across="at its beginning and at its end",
        where=(line.where if line else "") or (holder.where if holder else ""),
    )


_BY_PHASE = {
    "data_wait": "slower_data",
    "callbacks": "hook_does_more",
    "loop": "loop_does_more",
}

_GATHERING = {
    "callbacks": "append_to_log",
    "loop": "append_to_log",
    **dict.fromkeys(WORK, "find_what_gathers"),
}
"""What to change where a phase grew, at once and bit by bit."""


def _changed(change: RunChange, facts: Facts) -> str:
    """By what moved along, else by whether all phases did, else by the phase."""
    moved = {each.fact for each in change.moved}
    larger = moved & {"tokens_padded", "h2d_bytes", "samples"}
    return first_that_holds(
        ("larger_batches", larger and change.phase != "data_wait"),
        ("leave_room", _filled(change, facts)),
        ("slower_machine", change.alike or moved & {"pace_ns", "waited_ns"}),
        # What a loop does between two steps is its own, and no loader's.
        ("loop_does_more", change.phase == "data_wait" and facts.waits_in_own_code),
        (_BY_PHASE.get(change.phase, "something_changed"), True),
    )


def _filled(change: RunChange, facts: Facts) -> Moved | None:
    """Use of the device's memory before and after, where it became full meanwhile.

    A loader that is waited for longer does not wait for it.
    """
    if change.phase == "data_wait":
        return None
    # TraceML's upper band, as for `memory_limit`.
    full = 0.97 * (facts.number("device_memory_bytes") or inf)
    used = (each for each in change.moved if each.fact == "device_used_bytes")
    return next((each for each in used if each.before < full <= each.after), None)


def _used(change: RunChange, facts: Facts) -> tuple[str, ...]:
    """How full, and what of it tensors of this process held."""
    used, capacity = _filled(change, facts), facts.number("device_memory_bytes")
    held = facts.value(MEMORY_PEAK_BYTES)
    return texts_of(
        used is not None
        and capacity
        and f"memory in use of the device's {size(capacity)}: {share(used.before / capacity)} "
        f"before and {share(used.after / capacity)} after"
        + (f"; tensors held {size(held)} at most" if held else "")
    )


def _what_grew(change: RunChange) -> tuple[str, float, float]:
    """A phase, or all of the computing alike, and its seconds before and after."""
    if change.alike and change.rank is None:
        return _ALIKE, change.begins_s, change.ends_s
    on = "" if change.rank is None else f" on rank {change.rank}"
    return f"{words(change.phase)}{on}", change.phase_begins_s, change.phase_ends_s


def _along(moved: Collection[Moved]) -> tuple[str, ...]:
    return tuple(
        f"{_MOVED[each.fact]} grew with it: {_amount(each.fact, each.before)} to "
        f"{_amount(each.fact, each.after)} (+{share(each.after / each.before - 1)})"
        for each in moved
        if each.fact in _MOVED
    )


def _amount(fact: str, value: float) -> str:
    if fact.endswith("_ns"):
        return duration(value / 1e9)
    return size(value) if fact.endswith("_bytes") else f"{value:,.0f}"
