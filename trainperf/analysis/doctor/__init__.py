"""The family of checks of a run.

To add a check: a function in a file of its own, or in the file of its subject, and a line in
`CHECKS`.  Offline only: a check reads what was recorded.
"""

from msgspec.structs import asdict, replace

from trainperf.analysis.doctor.base import (
    MEASURE_IT,
    Case,
    Check,
    Checked,
    Checkup,
    Outcome,
    Status,
)
from trainperf.core.families import each
from trainperf.core.loop_kind import imported_from


CHECKS: tuple[Check, ...] = tuple(
    each(
        __name__,
        (
            "timing:warmed_up",
            "timing:steady_state",
            "operators:hot_path",
            "input:loader",
            "input:pinned_transfer",
            "input:batch_tensors",
            "operators:layouts",
            "operators:small_operators",
            "operators:tensor_cores",
            "precision:mixed_precision",
            "precision:overflows",
            "training:peak_memory",
            "training:accumulation",
            "profiler_evidence",
            "training:compile_split",
            "training:dynamic_shapes",
            "timing:throughput_unit",
            "inference:answers",
            "timing:loss_parity",
        ),
    )
)
"""In the order in which they are shown."""

OF_TRAINING = frozenset({"mixed_precision", "overflows", "accumulation", "loss_parity"})
"""Checks that an inference loop is spared: each is about an update."""

__all__ = ["CHECKS", "Case", "Check", "Checked", "Checkup", "Outcome", "Status", "examined"]


def examined(case: Case) -> Checkup:
    """The outcome of every check that such a loop has, in their order."""
    own = (check for check in CHECKS if case.loop.trains or check.__name__ not in OF_TRAINING)
    return Checkup(checks=tuple(_checked(check, case) for check in own))


def _checked(check: Check, case: Case) -> Checked:
    outcome = check(case)
    imported = imported_from(case.summary.run.config)
    if imported and outcome.status == "unknown" and "--baseline" not in outcome.action:
        # No option of a monitor adds anything to a log.
        outcome = replace(outcome, action=MEASURE_IT)
    return Checked(id=check.__name__, title=title_of(check), **asdict(outcome))


def title_of(check: Check) -> str:
    """What a check promises: the first line of its documentation."""
    return (check.__doc__ or "").strip().splitlines()[0].rstrip(".")
