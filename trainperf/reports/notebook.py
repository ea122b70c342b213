"""Display of a run and of a comparison in a notebook, in the look of the report's page.

    from trainperf.reports.notebook import compare, report

    report("runs/a")
    compare("runs/before", "runs/after")

The last value of a cell is shown; `print` shows the text of the command of that name.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timezone

from msgspec.structs import replace

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.joining import joined
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.schema import Summary
from trainperf.comparison import compare as comparing
from trainperf.comparison.clocks import decision_of
from trainperf.comparison.results import Comparison
from trainperf.core.errors import ConfigError
from trainperf.core.formatting.html.markup import fragment
from trainperf.core.paths import AnyPath, path_of
from trainperf.reports.comparison import comparison_document
from trainperf.reports.comparison_page import Pair, pair_document, read
from trainperf.reports.layout.html import as_html
from trainperf.reports.layout.text import as_text
from trainperf.reports.run import text
from trainperf.reports.run.document import run_document


Place = str | AnyPath


@dataclass(frozen=True, repr=False, slots=True)
class RunReport:
    """A run, shown by a notebook as its `report.html` without the charts."""

    summary: Summary
    """Readings, findings and phases."""

    def __repr__(self) -> str:
        return text.render(self.summary)

    def _repr_html_(self) -> str:
        return fragment(as_html(run_document(self.summary)))


@dataclass(frozen=True, repr=False, slots=True)
class ComparisonReport:
    """Two sides of a comparison, shown by a notebook as the page of `trainperf compare`."""

    comparison: Comparison
    """Verdict, intervals and readings."""
    pair: Pair

    def __repr__(self) -> str:
        return as_text(comparison_document(self.comparison))

    def _repr_html_(self) -> str:
        return fragment(as_html(pair_document(self.pair)))


def report(*runs: Place) -> RunReport:
    """Read a run, by path or URL; several are the restarts of one job, as for `trainperf report`.

    Raises:
        RunError: There is no run.
        ConfigError: No run was given.
    """
    if not runs:
        raise ConfigError('no run: give its directory, as in report("runs/a")')
    opened = [Run.open(path_of(run)) for run in runs]
    run = opened[0] if len(opened) == 1 else joined(opened, None)
    return RunReport(summarize(run, now_s=datetime.now(tz=timezone.utc).timestamp()))


def compare(before: Place | Sequence[Place], after: Place | Sequence[Place]) -> ComparisonReport:
    """Compare two runs, or the repeats of each, as `trainperf compare` does by default.

    Raises:
        RunError: There is no run.
    """
    sides = read([_repeats(before), _repeats(after)])
    comparison = comparing.compare(sides[0], sides[1])
    decided = replace(comparison, decision=decision_of(comparison))
    return ComparisonReport(decided, Pair(comparison=decided, before=sides[0], after=sides[1]))


def _repeats(side: Place | Sequence[Place]) -> list[Run]:
    runs = [side] if isinstance(side, str) or not isinstance(side, Sequence) else side
    return [Run.open(path_of(run)) for run in runs]
