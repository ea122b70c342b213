"""Check that contractions run on tensor cores."""

from trainperf.analysis.doctor.base import (
    Case,
    Outcome,
    not_applicable,
    not_judged,
    passed,
    to_audit,
    unknown,
)
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import share


FAILS_ON = ("matmul_precision", "matmul_shapes")

SLOW = ("fp32", "fp64")
"""Precisions that tensor cores of GPUs are not for."""

SOUNDS = 0.5
"""Share of a trace's kernel time in kernels that sound of tensor cores: a heuristic."""


def tensor_cores(case: Case) -> Outcome:
    """Matmul and convolution shapes use tensor cores.

    Fails on `matmul_precision` and `matmul_shapes`.  Unknown without an audit or a telling trace.
    """
    summary, audit = case.summary, case.evidence.documents.audit
    if summary.run.device == "cpu":
        return not_applicable("a CPU has no tensor cores")
    sounded = _sounds(case)
    traced = "" if sounded is None else f"{share(sounded)} of kernel time looks like tensor cores"
    why = not_judged(case)
    if audit is not None and audit.precision is None:
        return not_applicable("the step has no contraction")
    if audit is not None and not why:
        evidence = f"most contractions in {audit.precision}"
        slow = audit.precision in SLOW
        worth = f"{evidence}: a faster precision would gain less than {share(LIMITS.notable)}"
        return passed(worth if slow else f"{evidence}, their sizes fit", traced)
    if sounded is not None and sounded >= SOUNDS:
        return passed(traced)
    return unknown(traced or why, to_audit(case))


def _sounds(case: Case) -> float | None:
    """Mean over the traced steps that tell."""
    fractions = [
        step.tensor_core_fraction
        for report in case.evidence.captures
        for rank in report.ranks
        for step in rank.steps
        if step.tensor_core_fraction is not None
    ]
    return sum(fractions) / len(fractions) if fractions else None
