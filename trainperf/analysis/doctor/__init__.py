"""Checkup of a run: nineteen things that should hold, each a view of facts and causes.

Offline only: a check reads what was recorded.  To add one: an entry in `checks.CHECKS`.
"""

from msgspec.structs import replace

from trainperf.analysis.doctor.base import Case, Check, Checkup, Outcome, Status
from trainperf.analysis.doctor.checks import CHECKS
from trainperf.core.loop_kind import imported_from


MEASURE_IT = "trainperf run SCRIPT measures the same training for 200 steps"
"""How to learn what a log does not hold."""

__all__ = [
    "CHECKS",
    "MEASURE_IT",
    "Case",
    "Check",
    "Checkup",
    "Outcome",
    "Status",
    "examined",
]


def examined(case: Case) -> Checkup:
    """The outcome of every check that such a loop has, in their order."""
    trains = case.facts.loop.trains
    return Checkup(
        checks=tuple(_checked(check, case) for check in CHECKS if trains or not check.of_training)
    )


def _checked(check: Check, case: Case) -> Outcome:
    outcome = check.outcome(case)
    unseen = outcome.status == "unknown" and "--baseline" not in outcome.action
    if unseen and imported_from(case.facts.settings):
        # No option of a monitor adds anything to a log.
        outcome = replace(outcome, action=MEASURE_IT)
    return replace(outcome, id=check.id, title=check.title)
