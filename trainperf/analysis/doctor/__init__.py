"""Is a training run in order?  To add a check: a file here and a line in `CHECKS`.

Offline only: a check reads what was recorded, and where a rule decides, it asks the rule.
"""

from trainperf.analysis.doctor.accumulation import accumulation
from trainperf.analysis.doctor.base import Case, Check, Checked, Checkup, Outcome, Status
from trainperf.analysis.doctor.batch_tensors import batch_tensors
from trainperf.analysis.doctor.compile_split import compile_split
from trainperf.analysis.doctor.dynamic_shapes import dynamic_shapes
from trainperf.analysis.doctor.hot_path import hot_path
from trainperf.analysis.doctor.layouts import layouts
from trainperf.analysis.doctor.loader import loader
from trainperf.analysis.doctor.loss_parity import loss_parity
from trainperf.analysis.doctor.mixed_precision import mixed_precision
from trainperf.analysis.doctor.overflows import overflows
from trainperf.analysis.doctor.peak_memory import peak_memory
from trainperf.analysis.doctor.pinned_transfer import pinned_transfer
from trainperf.analysis.doctor.profiler_evidence import profiler_evidence
from trainperf.analysis.doctor.small_operators import small_operators
from trainperf.analysis.doctor.steady_state import steady_state
from trainperf.analysis.doctor.tensor_cores import tensor_cores
from trainperf.analysis.doctor.throughput_unit import throughput_unit
from trainperf.analysis.doctor.warmed_up import warmed_up


CHECKS: tuple[Check, ...] = (
    warmed_up,
    steady_state,
    hot_path,
    loader,
    pinned_transfer,
    batch_tensors,
    layouts,
    small_operators,
    tensor_cores,
    mixed_precision,
    overflows,
    peak_memory,
    accumulation,
    profiler_evidence,
    compile_split,
    dynamic_shapes,
    throughput_unit,
    loss_parity,
)

__all__ = ["CHECKS", "Case", "Check", "Checked", "Checkup", "Outcome", "Status", "examined"]


def examined(case: Case) -> Checkup:
    """The outcome of every check, in their order."""
    return Checkup(checks=tuple(_checked(check, case) for check in CHECKS))


def _checked(check: Check, case: Case) -> Checked:
    outcome = check(case)
    return Checked(
        id=check.__name__,
        title=title_of(check),
        status=outcome.status,
        evidence=outcome.evidence,
        action=outcome.action,
    )


def title_of(check: Check) -> str:
    """What a check promises: the first line of its documentation."""
    return (check.__doc__ or "").strip().splitlines()[0].rstrip(".")
