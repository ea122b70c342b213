"""The family of checks of a training run.

To add a check: a file that defines a function of its own name, and a line in `CHECKS`.  Offline
only: a check reads what was recorded.  Where rules decide, the file lists them as `FAILS_ON`: a
finding of theirs fails the check, which otherwise does not look at it again.
"""

import sys

from trainperf.analysis.doctor.base import Case, Check, Checked, Checkup, Outcome, Status, failed_by
from trainperf.core.families import each


CHECKS: tuple[Check, ...] = tuple(
    each(
        __name__,
        (
            "warmed_up",
            "steady_state",
            "hot_path",
            "loader",
            "pinned_transfer",
            "batch_tensors",
            "layouts",
            "small_operators",
            "tensor_cores",
            "mixed_precision",
            "overflows",
            "peak_memory",
            "accumulation",
            "profiler_evidence",
            "compile_split",
            "dynamic_shapes",
            "throughput_unit",
            "loss_parity",
        ),
    )
)
"""In the order in which they are shown."""

__all__ = ["CHECKS", "Case", "Check", "Checked", "Checkup", "Outcome", "Status", "examined"]


def examined(case: Case) -> Checkup:
    """The outcome of every check, in their order."""
    return Checkup(checks=tuple(_checked(check, case) for check in CHECKS))


def _checked(check: Check, case: Case) -> Checked:
    ids = getattr(sys.modules[check.__module__], "FAILS_ON", ())
    outcome = failed_by(case, ids) or check(case)
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
