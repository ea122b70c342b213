"""Causes in operators: their parts of a step, their claims, and where their times are from."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from trainperf.analysis.diagnosis.account import (
    Claim,
    Region,
    StepAccount,
    of_regions,
    total_s,
)
from trainperf.analysis.diagnosis.cause import Cause
from trainperf.analysis.diagnosis.detectors.lines import LOOP, calls_of, lines_of, place_of
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.diagnosis.regions import SHORT_CALLS
from trainperf.analysis.roofline.roofline import LAUNCH_S
from trainperf.core.findings import REFILL_BYTES
from trainperf.core.formatting.units import duration, share
from trainperf.core.groups import grouped


PASSES = ("forward", "backward", "recompute")
"""Parts of the step that are no update."""

MANY_CALLS = 100
"""Launching so many takes about a millisecond, Python and autograd around them included."""


def passes(account: StepAccount) -> list[Region]:
    """Operators that are no update."""
    return [region for region in account.regions if region.use.part in PASSES]


def cause_in_operators(
    cause: Cause,
    rows: Sequence[Region],
    account: StepAccount,
    facts: Facts,
    *,
    detail: str = "",
    at: Sequence[Region] = (),
) -> Cause:
    """A cause in operators with its evidence, its place, and how sure that is.

    Args:
        cause: Its title has `{part}` for the share of the step that the operators take.
        rows: The operators.
        account: The step.
        facts: Of the run.
        detail: Follows the time that they take, in the evidence.
        at: Those of them whose line is the one to change; by default all.
    """
    where, called_at = place_of(at or rows)
    spent = f"{duration(total_s(rows))} of {duration(account.step_s)} per step"
    modelled = account.regions_basis == "modelled"
    return replace(
        cause,
        title=cause.title.format(part=share(account.share(total_s(rows)))),
        evidence=(f"{spent}{detail}", *lines_of(rows), stands_on(account, facts)),
        where=where,
        called_at=called_at,
        confidence="low" if modelled else "medium",
        bounded=not modelled,
    )


def stands_on(account: StepAccount, facts: Facts) -> str:
    """Where the times are from."""
    audit = facts.documents.audit
    step = "step" if audit is None or audit.step is None else f"step {audit.step}"
    sources = {
        "modelled": f"modelled from the floors of {step}; {facts.loop.capture} would measure it",
        "traced": f"device times from the trace, operators from {step}",
    }
    return sources.get(account.regions_basis, f"operators timed one by one in {step}")


def emptying(claim: Claim, written_bytes: float) -> Claim:
    """The same of operators whose results push others out of the caches."""
    return replace(claim, interruptions=max(1.0, written_bytes / REFILL_BYTES))


def needless(rows: Sequence[Region]) -> Claim:
    """Operators of whose work nothing has to stay."""
    return emptying(of_regions(rows), sum(row.use.written_bytes for row in rows))


def is_tiny(region: Region, facts: Facts) -> bool:
    """Whether a call is small, and none of those that a module of torch itself makes in a loop."""
    return region.use.in_call < LOOP and is_small(region, facts)


def is_small(region: Region, facts: Facts) -> bool:
    """Whether a call has less work than a launch takes, and takes far longer than its work.

    Work is the roofline with all that it reads and writes: what a cache serves is work, too.
    """
    if facts.light is None:
        return False
    moved_s = region.use.moved_bytes / facts.light.chip.memory_bytes_per_s
    work_s = max(region.ideal_s, moved_s)
    return work_s < region.use.calls * LAUNCH_S and region.seconds > 4 * work_s


def is_looped(region: Region, facts: Facts) -> bool:
    """Whether a loop calls it for a batch, each call no longer than that of a compiled function.

    One in a module of torch itself is nobody's to change.
    """
    calls, own = region.use.calls, region.use.in_call < LOOP
    short = region.seconds < calls * SHORT_CALLS * LAUNCH_S
    return own and short and calls >= LOOP * facts.micro_batches


def in_loops(rows: Iterable[Region], facts: Facts) -> dict[str | None, list[Region]]:
    """Lines that call operators by the hundred for a batch, shortly, and all that they call."""
    lines = grouped((row.use.line, row) for row in often_and_short(rows, facts))
    least = MANY_CALLS * facts.micro_batches
    return {line: mine for line, mine in lines.items() if line and calls_of(mine) >= least}


def often_and_short(rows: Iterable[Region], facts: Facts) -> list[Region]:
    """Operators that a loop calls for a batch, each call tiny or as short as a launch."""
    often = [row for row in rows if row.use.calls >= LOOP * facts.micro_batches]
    return [row for row in often if is_tiny(row, facts) or is_looped(row, facts)]
