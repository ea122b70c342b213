"""Detectors of the transfer: copies to the device, and their number."""

from dataclasses import replace

from trainperf.analysis.diagnosis.account import Claim, StepAccount, of_slots
from trainperf.analysis.diagnosis.cause import Cause, Use, worth
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.core.choice import first_that_holds, texts_of
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import count, duration, rate, share, size
from trainperf.core.readings import (
    H2D_BYTES,
    H2D_BYTES_PER_S,
    H2D_TENSORS,
)


SMALL_TENSOR_BYTES = 1 << 18
"""A copy of 256 KiB takes 10 µs over a link of 25 GB/s: as long as starting it does."""

MANY_TENSORS = 16
"""In a batch: from here on handling them stands out against what is in them."""


@worth(LIMITS.notable)
def many_small_tensors(account: StepAccount, facts: Facts) -> Cause | None:
    """The batch is many small tensors, and the step pays for the copy of each to the device.

    Starting a copy takes as long as moving what is in it, so one of all of them is cheaper.

    Wrong where: the model needs them one by one, so that joining them moves the work and saves
    none.
    To confirm: the readings `h2d_tensors`, `h2d_bytes` and `h2d_fraction`.
    """
    tensors, copied = facts.value(H2D_TENSORS) or 0.0, facts.value(H2D_BYTES)
    many = tensors >= MANY_TENSORS * facts.micro_batches
    claim = _copies(account)
    if copied is None or not many or copied >= tensors * SMALL_TENSOR_BYTES:
        return None
    return Cause(
        id="many_small_tensors",
        title=f"{share(account.share(claim.removes_s))} of the step goes into copying "
        f"{count(round(tensors))} small tensors",
        evidence=(
            f"{duration(claim.removes_s)} of {duration(account.step_s)} per step",
            f"{size(copied / tensors)} per tensor, at {rate(facts.value(H2D_BYTES_PER_S) or 0)}",
        ),
        changes=(Use(change="join_copies"),),
        claim=claim,
        confidence="medium",
    )


def _copies(account: StepAccount) -> Claim:
    """What the batch's way to the device costs a step at most."""
    host_s = moved_s = account.spent("h2d")
    copies_s = None if account.device is None else account.device.copies_s
    if copies_s is not None:
        moved_s = max(host_s, copies_s) if account.host_decides else copies_s
    return Claim(
        owns_s={"h2d": host_s},
        removes_s=moved_s,
        device={} if copies_s is None else {"copies_s": moved_s},
    )


@worth()
def transfer(account: StepAccount, facts: Facts) -> Cause | None:
    """The host-to-device copy takes a notable part of the step.

    What a trace shows to overlap computation is not counted.

    Wrong where: the copies overlap computation, which only a trace shows.
    To confirm: `trainperf try --only no_transfer SCRIPT`; `trainperf trace` shows the share that
    overlaps.
    """
    claim = _copies(account)
    copied, tensors = facts.value(H2D_BYTES), facts.value(H2D_TENSORS)
    speed, pinned = facts.value(H2D_BYTES_PER_S), facts.number("pin_memory")
    change = first_that_holds(
        ("hooks_of_transfer", account.device is None),
        ("pin_memory", pinned == 0 and not facts.run.backend.unified),
        ("send_smaller", True),
    )
    return Cause(
        id="transfer",
        title=f"moving the batch to the device takes {share(account.share(claim.removes_s))} of "
        "the step",
        evidence=texts_of(
            f"{duration(claim.removes_s)} of {duration(account.step_s)} per step",
            copied is not None
            and f"{size(copied)} per step" + (f" at {rate(speed)}" if speed else ""),
            tensors is not None and f"{count(tensors)} tensor{'s' * (tensors != 1)} per step",
            pinned is not None and f"pin_memory={bool(pinned)}",
        ),
        changes=(Use(change=change),),
        claim=claim,
    )


@worth()
def offloaded_update(account: StepAccount, facts: Facts) -> Cause | None:
    """The optimizer's weights are on the host: gradients go there, and weights come back.

    The device waits for it, and launching less work does not help.

    Wrong where: the memory that this saves is what the training fits into the device with.
    To confirm: `trainperf prove` with the optimizer on the device.
    """
    if account.device is None or facts.settings.get("optimizer_device") != "cpu":
        return None
    spent_s = account.spent("optimizer")
    return Cause(
        id="offloaded_update",
        title=f"{share(account.share(spent_s))} of the step updates weights on the CPU",
        evidence=(f"{duration(spent_s)} per step; the optimizer's weights are on the CPU",),
        changes=(Use(change="update_on_device"),),
        claim=replace(of_slots(account, "optimizer"), device={"host_s": spent_s}),
    )
