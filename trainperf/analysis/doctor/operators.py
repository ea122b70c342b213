"""Checks of the audited step: reads, layouts, launches, tensor cores."""

import msgspec

from trainperf.analysis.doctor.base import (
    Case,
    Outcome,
    failed,
    fails_on,
    measured,
    not_applicable,
    not_judged,
    passed,
    settled,
    to_audit,
    trials_of,
    unknown,
)
from trainperf.analysis.rules.host.base import reads
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import count, plural, share
from trainperf.core.readings import HOST_BOUND_FRACTION


@fails_on("hidden_syncs", "host_code")
def hot_path(case: Case) -> Outcome:
    """No `.item()`, print or CPU copy in the hot path.

    Fails on `hidden_syncs` and `host_code`, and when a line of yours reads a value in the audited
    step: on a CPU too, where it costs little, because the same script stops a GPU.  Unknown without
    an audit or a trace.

    Wrong where: the value is needed in the step; the check still counts it.
    To confirm: `trainperf.smoke.assert_no_sync(step, batch)`.
    """
    audit, traced = case.evidence.documents.audit, _traced(case)
    if audit is None:
        return (
            passed(traced) if traced else unknown("no step was audited or traced", to_audit(case))
        )
    rows = sorted(reads(audit.operators), key=lambda row: -row.calls)
    if rows:
        lines = [f"{row.line}: {plural(row.calls, 'read')} per step" for row in rows[:3]]
        cheap = "on a CPU they cost little; on a GPU each one stops the step"
        return failed(case.loop.kept, *lines, cheap if case.summary.run.device == "cpu" else "")
    return passed("your code reads no value in the audited step", traced)


def _traced(case: Case) -> str:
    """What the traces counted on the rank where it is most; empty without traces."""
    calls = [
        (rank.totals.item_calls or 0.0, rank.totals.sync_calls or 0.0)
        for report in case.evidence.captures
        for rank in report.ranks
    ]
    if not calls:
        return ""
    items, syncs = max(calls)
    return f"{count(items)} .item() and {count(syncs)} synchronising calls per traced step"


@fails_on("layout_copies", "channels_last")
def layouts(case: Case) -> Outcome:
    """Layouts do not cause repeated `contiguous()`.

    Fails on `layout_copies` and `channels_last`.  Unknown without an audit.

    Wrong where: the audited step is unlike the others.
    To confirm: an audit of another step (`--audit-at`).
    """
    audit = case.evidence.documents.audit
    why = not_judged(case)
    if audit is None or why:
        return unknown(why, to_audit(case))
    copies = [use for use in audit.operators if use.kind == "copy" and use.place == "device"]
    moved = sum(use.moved_bytes for use in audit.operators)
    copied = sum(use.moved_bytes for use in copies)
    much = f", {share(copied / moved)} of the bytes that operators move" if moved else ""
    return passed(f"{plural(sum(use.calls for use in copies), 'copy call')} per step{much}")


_FUSED = ("launch_bound", "host_bound", "elementwise_chain")
"""Rules about all small operators of a step, whose advice fuses them."""

_SMALL = (*_FUSED, "attention", "optimizer_not_fused")


@fails_on(*_SMALL, tried=True)
def small_operators(case: Case) -> Outcome:
    """Small ops could not be batched or fused to any gain.

    Fails on a trial of fusing them that was faster, and on `launch_bound`, `host_bound`,
    `elementwise_chain`, `attention` and `optimizer_not_fused`, but not on one of them whose trials
    were all equal or slower.  Unknown without a trial of all of them, an audit, a trace or a GPU.

    Wrong where: no trial, audit or trace looked: the check says unknown then, never pass.
    To confirm: `trainperf try --only compile SCRIPT`.
    """
    trials, looked = trials_of(case, _SMALL), _launched(case)
    facts = tuple(map(measured, trials))
    if looked.status == "unknown" and settled(trials) & {*_FUSED}:
        return passed(*facts)
    return msgspec.structs.replace(looked, evidence=(*facts, *looked.evidence))


def _launched(case: Case) -> Outcome:
    """How many calls a step has, and what launching them takes."""
    audit, summary = case.evidence.documents.audit, case.summary
    bound = summary.value(HOST_BOUND_FRACTION) if summary.run.steady_steps else None
    dimensions, why = summary.dimensions, not_judged(case)
    traced = dimensions is not None and dimensions.basis.startswith("trace")
    launching = ""
    if dimensions is not None and dimensions.launch is not None:
        launching = f"{share(dimensions.launch)} of the step is launch overhead"
    if why and bound is None and not (traced and launching):
        return unknown(why, to_audit(case))
    many = "" if audit is None else f"{plural(audit.calls, 'operator call')} per step"
    host = "" if bound is None else f"host-bound in {share(bound)} of the steps"
    return passed(many, host, launching)


@fails_on("matmul_precision", "matmul_shapes")
def tensor_cores(case: Case) -> Outcome:
    """Matmul and convolution shapes use tensor cores.

    Fails on `matmul_precision` and `matmul_shapes`.  Unknown without an audit or a telling trace.

    Wrong where: kernels are told by their names in a trace: a heuristic.
    To confirm: an audit; the profiler of the vendor.
    """
    summary, audit = case.summary, case.evidence.documents.audit
    if summary.run.device == "cpu":
        return not_applicable("a CPU has no tensor cores")
    part = _kernel_share(case)
    traced = "" if part is None else f"{share(part)} of kernel time looks like tensor cores"
    why = not_judged(case)
    if audit is not None and audit.precision is None:
        return not_applicable("the step has no contraction")
    if audit is not None and not why:
        evidence = f"most contractions in {audit.precision}"
        if audit.precision in ("fp32", "fp64"):  # tensor cores are not for these
            gain = f"a faster precision would gain less than {share(LIMITS.notable)}"
            return passed(f"{evidence}: {gain}", traced)
        return passed(f"{evidence}, their sizes fit", traced)
    if part is not None and part >= 0.5:  # by the names of kernels: a heuristic
        return passed(traced)
    return unknown(traced or why, to_audit(case))


def _kernel_share(case: Case) -> float | None:
    """Share of kernel time in kernels named like those of tensor cores, over the traced steps."""
    fractions = [
        step.tensor_core_fraction
        for report in case.evidence.captures
        for rank in report.ranks
        for step in rank.steps
        if step.tensor_core_fraction is not None
    ]
    return sum(fractions) / len(fractions) if fractions else None
