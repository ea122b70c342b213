"""Accounts, regions and facts in memory: what detectors see, without a run on disk."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import msgspec
from support.audits import CHIP, USE
from support.light import make_audit

from trainperf.analysis.diagnosis.account import (
    Basis,
    DeviceAccount,
    LoaderAccount,
    Meeting,
    Region,
    StepAccount,
)
from trainperf.analysis.diagnosis.cause import Cause
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.roofline.roofline import Roofline, roofline
from trainperf.analysis.summary.schema import RunFacts, Summary
from trainperf.core.artifacts.audit import OperatorUse
from trainperf.core.artifacts.folder import Documents
from trainperf.core.loop_kind import PLAIN, LoopKind
from trainperf.core.machine.backends import CUDA, Backend
from trainperf.core.machine.chips import Chip
from trainperf.core.steps.records import Scalar
from trainperf.meters.fold import Reading


MS = 1e-3
MIB, GIB = 2**20, 2**30


class Seen(NamedTuple):
    """What a detector is given."""

    account: StepAccount
    facts: Facts


def seen(account: StepAccount, **known: object) -> Seen:
    """An account with the facts beside it."""
    return Seen(account, facts_of(**known))


def facts_of(
    *,
    loop: LoopKind = PLAIN,
    device: Backend = CUDA,
    readings: Mapping[str, float | Reading] | None = None,
    settings: Mapping[str, Scalar] | None = None,
    documents: Mapping[str, object] | None = None,
    **known: object,
) -> Facts:
    """Facts of two hundred steady steps, if nothing else is said.

    Args:
        loop: That ran.
        device: That advice is for.
        readings: Values of readings, or readings.
        settings: Of the run.
        documents: By their names.
        known: Other fields of the facts, of the summary and of the run; of ranks their number.
    """
    beside = {name: known.pop(name) for name in ("light", "traces", "stragglers") if name in known}
    ranks = known.pop("ranks", 1)
    run = {
        "config": {**(settings or {}), "loop": loop.name},
        "device": device.name,
        "steps": 200,
        "steady_steps": 200,
        "ranks": tuple(range(ranks)) if isinstance(ranks, int) else ranks,
        **{name: known.pop(name) for name in [*known] if name in RunFacts.__struct_fields__},
    }
    of_steps = {
        name: value if isinstance(value, Reading) else Reading(value=value, unit="")
        for name, value in (readings or {}).items()
    }
    return Facts(
        summary=Summary(run=RunFacts(**run), readings=of_steps, **known),
        documents=Documents(**(documents or {})),
        **beside,
    )


def with_summary(facts: Facts, **fields: object) -> Facts:
    """The same with other fields of their summary."""
    return replace(facts, summary=msgspec.structs.replace(facts.summary, **fields))


def step(
    *regions: Region,
    ms: float | None = None,
    device: DeviceAccount | None = None,
    loader: LoaderAccount | None = None,
    fit_s: float | None = None,
    pauses_s: Mapping[str, float] | None = None,
    **known: object,
) -> StepAccount:
    """A step of two hundred, its slots given in milliseconds by their label.

    Args:
        regions: Of its computing.
        ms: All of it; by default the sum of the slots.
        device: That computes beside the host.
        loader: That makes its batches.
        fit_s: The fit; by default two hundred steps and the pauses.
        pauses_s: Of the fit.
        known: Slots in milliseconds, and other fields of the account.
    """
    fields = {name: known.pop(name) for name in [*known] if name in StepAccount.__slots__}
    loop_s = {slot: spent * MS for slot, spent in known.items()}
    step_s = sum(loop_s.values()) if ms is None else ms * MS
    paused_s = sum((pauses_s or {}).values())
    return StepAccount(
        step_s=step_s,
        loop_s=loop_s,
        regions=regions,
        device=device,
        loader=loader,
        fit_s=200 * step_s + paused_s if fit_s is None else fit_s,
        steps_s=200 * step_s,
        steps=200,
        pauses_s=pauses_s or {},
        **fields,
    )


def region(
    name: str,
    ms: float = 0.0,
    *,
    python: float = 0.0,
    ideal: float = 0.0,
    fused: float | None = None,
    compute: float = 0.0,
    **use: object,
) -> Region:
    """An operator that runs for so many milliseconds of a step, and as long before its calls."""
    timed = {"host_s": ms * MS, "busy_s": ms * MS, "before_s": python * MS}
    made = operator(name, **{**timed, **use})
    return Region(
        use=made,
        slot={"recompute": "backward"}.get(made.part, made.part),
        run_s=ms * MS,
        python_s=python * MS,
        ideal_s=ideal * MS,
        fused_s=(ideal if fused is None else fused) * MS,
        compute_s=compute * MS,
    )


def operator(name: str, **use: object) -> OperatorUse:
    """A row of an audit; products count their FLOPs as those of contractions."""
    if use.get("kind") == "matmul" and "flops" in use:
        use = {"matmul_flops": use["flops"], **use}
    return msgspec.structs.replace(USE, name=f"aten.{name}.default", **use)


def on_gpu(**fields: float) -> DeviceAccount:
    """A device of which this is known; it waits for the host in every step if nothing is said."""
    return DeviceAccount(**{"host_bound": 1.0, **fields})


def loading(
    workers: int | None,
    making: float,
    *,
    transport: float = 1.0,
    **fields: float,
) -> LoaderAccount:
    """Milliseconds that a batch takes to make, and to take over from a worker."""
    return LoaderAccount(
        workers=workers,
        making_s=making * MS,
        transport_s=transport * MS,
        **fields,
    )


def meeting(wait: float, transfer: float, **late: float) -> Meeting:
    """Milliseconds that the first rank waits, that all do, and by which slots make one late."""
    return Meeting(
        wait_s=wait * MS,
        transfer_s=transfer * MS,
        late={slot: lost * MS for slot, lost in late.items()},
    )


def light(chip: Chip = CHIP, *uses: OperatorUse) -> Roofline:
    """A step against that chip."""
    return roofline(make_audit(*uses), chip)


def audit_of(*regions: Region, device: str = "cpu", **fields: object) -> dict[str, object]:
    """The documents with the audit that these regions are rows of."""
    made = make_audit(*(each.use for each in regions), device=device, step=30)
    return {"audit": msgspec.structs.replace(made, **fields)}


def removed_s(cause: Cause) -> float | None:
    """Seconds of a step, or of the fit, that would be gone without a cause."""
    if cause.claim is None:
        return None
    return sum(cause.claim.pauses_s.values()) or cause.claim.removes_s


MODELLED: Basis = "modelled"
