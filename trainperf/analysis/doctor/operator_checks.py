"""Checks of the operators in a step: copies, launches and tensor cores."""

from statistics import fmean

from trainperf.analysis.diagnosis.account import total_s
from trainperf.analysis.diagnosis.tried import line_to_write, sentence
from trainperf.analysis.doctor.base import (
    Case,
    Check,
    answer,
    missing,
    on_host,
    only,
    operators_seen,
    shown,
)
from trainperf.core.artifacts.trials import TrialResult
from trainperf.core.findings import LIMITS
from trainperf.core.formatting.units import plural, share
from trainperf.core.readings import HOST_BOUND_FRACTION


def _copies(case: Case) -> str:
    rows = [region for region in case.account.regions if region.use.kind == "copy"]
    part, calls = case.account.share(total_s(rows)), sum(row.use.calls for row in rows)
    return f"{plural(calls, 'copy call')} take {share(part)} of the step"


_FUSED = ("launch_bound", "elementwise_chain")
"""Causes in all small operators of a step, whose changes fuse them."""


_SMALL = (*_FUSED, "attention", "optimizer_not_fused")


def _fusing(case: Case) -> list[TrialResult]:
    """Trials of it that came to a speed-up."""
    trials = () if case.facts.documents.trials is None else case.facts.documents.trials.trials
    return [t for t in trials if t.kind == "change" and t.counts and {*_SMALL} & {*t.rules}]


def _launching(case: Case) -> str:
    """The share of launches, by an audit or a trace; empty without either."""
    parts, measured = case.facts.summary.dimensions, case.account.regions or case.facts.traces
    launch = parts.shares.get("launch") if parts is not None and measured else None
    return "" if launch is None else f"{share(launch)} of the step is launch overhead"


def _on_tensor_cores(case: Case) -> float:
    """Share of kernel time in kernels named like those of tensor cores, over the traced steps."""
    steps = [step.tensor_core_fraction for rank in case.facts.traces for step in rank.steps]
    return fmean([each for each in steps if each is not None] or [0.0])


OPERATOR_CHECKS: tuple[Check, ...] = (
    Check(
        id="layouts",
        about="""Layouts do not cause repeated `contiguous()`.

        Fails on `layout_copies`.  Unknown without an audit.

        Wrong where: the audited step is unlike the others.
        To confirm: an audit of another step (`--audit-at`).
        """,
        causes=("layout_copies",),
        looks=[operators_seen, answer("pass", _copies)],
    ),
    Check(
        id="small_operators",
        about="""Small ops could not be batched or fused to any gain.

        Fails on a trial of fusing them that was faster, and on `launch_bound`,
        `elementwise_chain`, `attention` and `optimizer_not_fused`, but not on one of them whose
        trials were all equal or slower.  Unknown without a trial of all of them, an audit, a trace
        or a GPU.

        Wrong where: no trial, audit or trace looked: the check says unknown then, never pass.
        To confirm: `trainperf try --only compile SCRIPT`.
        """,
        causes=_SMALL,
        first=[
            answer(
                "fail",
                lambda case: "; ".join(map(sentence, _fusing(case))),
                action=lambda case: next(
                    line_to_write(trial) for trial in _fusing(case) if trial.verdict == "faster"
                ),
                when=lambda case: any(trial.verdict == "faster" for trial in _fusing(case)),
            ),
        ],
        looks=[
            # A trial that is about the update, or about attention, leaves the other operators open.
            answer(
                "pass",
                lambda case: "; ".join(map(sentence, _fusing(case))),
                when=lambda case: any(
                    {*_FUSED} & {*trial.rules} and trial.verdict != "undecided"
                    for trial in _fusing(case)
                ),
            ),
            answer(
                "pass",
                only(
                    "{facts.documents.audit.calls:,} operator calls per step",
                    lambda case: case.account.regions,
                ),
                shown(HOST_BOUND_FRACTION, "host-bound in {} of the steps", share),
                _launching,
                when=lambda case: (
                    case.account.regions
                    or _launching(case)
                    or not missing(HOST_BOUND_FRACTION)(case)
                ),
            ),
            operators_seen,
        ],
    ),
    Check(
        id="tensor_cores",
        about="""Matmul and convolution shapes use tensor cores.

        Fails on `matmul_precision`.  Unknown without an audit or a telling
        trace.

        Wrong where: kernels are told by their names in a trace: a heuristic.
        To confirm: an audit; the profiler of the vendor.
        """,
        causes=("matmul_precision",),
        looks=[
            answer("not_applicable", "a CPU has no tensor cores", when=on_host),
            answer(
                "not_applicable",
                "the step has no contraction",
                when=lambda case: (
                    case.account.regions
                    and not any(region.use.matmul_flops for region in case.account.regions)
                ),
            ),
            answer(
                "pass",
                "most contractions in {facts.documents.audit.precision}: neither another precision "
                f"nor other sizes would gain {share(LIMITS.notable)}",
                when=lambda case: case.account.regions,
            ),
            answer(
                "pass",
                lambda case: (
                    f"{share(_on_tensor_cores(case))} of kernel time looks like tensor cores"
                ),
                when=lambda case: _on_tensor_cores(case) >= LIMITS.mostly,
            ),
            operators_seen,
        ],
    ),
)
"""In the order in which they are shown."""
