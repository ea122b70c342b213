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


def tensor_cores(case: Case) -> Outcome:
    """Matmul and convolution shapes use tensor cores.

    Fails on `matmul_precision` and `matmul_shapes`.  Unknown without an audit or a telling trace.
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
