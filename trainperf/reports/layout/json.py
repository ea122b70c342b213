"""Results for programs, as indented JSON: the data as it is, nothing added."""

from collections.abc import Sequence

import msgspec

from trainperf.analysis.diagnosis.offers import OfferedTrial
from trainperf.analysis.doctor import Checkup
from trainperf.analysis.summary.schema import Summary, encode_summary
from trainperf.comparison.bisection import Bisection
from trainperf.comparison.results import Comparison, encode_comparison
from trainperf.core.artifacts.trials import Trials
from trainperf.reports.explanations import Explanation
from trainperf.traces.results import TraceReport


def summary_json(summary: Summary) -> str:
    """The summary of a run, exactly `summary.json`."""
    return encode_summary(summary).decode()


def comparison_json(comparisons: Sequence[Comparison]) -> str:
    """A list with one object for each run after the first."""
    return encode_comparison(tuple(comparisons)).decode()


def comparison_line(comparisons: Sequence[Comparison]) -> str:
    """The same on one line."""
    return msgspec.json.encode(comparisons).decode() + "\n"


def bisection_json(bisection: Bisection) -> str:
    """`{"end", "first_slow", "change", "verdict", "candidates", "steps", …}` on one line."""
    return msgspec.json.encode(bisection).decode() + "\n"


def checkup_json(checkup: Checkup) -> str:
    """`{"checks": [{"id", "title", "status", "evidence", "action"}]}`."""
    return _indented(checkup)


def trials_json(trials: Trials) -> str:
    """`{"baseline": {…}, "trials": […]}`, exactly `trials.json`: changes, then ceilings."""
    return _indented(trials)


def offers_json(offers: Sequence[OfferedTrial]) -> str:
    """`[{"id", "kind", "does", "applies", "why_not"}]`."""
    return _indented(offers)


def explanations_json(entries: Sequence[Explanation]) -> str:
    """`[{"kind", "id", "means", "measured", "wrong", "confirm", …}]`."""
    return _indented(entries)


def trace_json(reports: Sequence[TraceReport]) -> str:
    """The report of a job's traces; of several jobs a list of them."""
    return _indented(reports[0] if len(reports) == 1 else reports)


def _indented(data: object) -> str:
    return msgspec.json.format(msgspec.json.encode(data), indent=2).decode() + "\n"
