"""Checkup of a run: nineteen things that should hold, each a view of facts and causes.

Offline only: a check reads what was recorded.  To add one: an entry in `checks.CHECKS`.
"""

from trainperf.analysis.doctor.base import MEASURE_IT, Case, Check, Checkup, Outcome, Status
from trainperf.analysis.doctor.checks import CHECKS


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
        checks=tuple(check.outcome(case) for check in CHECKS if trains or not check.of_training)
    )
