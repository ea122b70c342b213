"""Claim of the overlap recipe before it is decided: what it says, and what its case will show."""

from dataclasses import dataclass

from recipes.cases.case import Case, MeasuredRow, PublishedFigure
from recipes.cases.measuring import rows
from recipes.cases.reports import BENCHMARK, Before, benchmark_lines
from recipes.cases.verdicts import Expectation, Judgement, needs_cuda, verdict
from trainperf.benchmark import BenchmarkComparison


NOTHING_RAN = Before(before=(), before_note="nothing; neither version can run here.")


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapClaim:
    """What is claimed of the second of two versions."""

    name: str
    claim: str
    expected: Expectation
    change: tuple[str, ...]
    why_not: str = ""
    """Why it may not hold, said only where it does not."""
    before: Before | None = None
    """What trainperf's report says before the change; without one its benchmark speaks."""
    published: PublishedFigure | None = None

    def decided(self, comparison: BenchmarkComparison) -> Case:
        """The case of what was measured: both versions, the changed one last."""
        measured = rows(comparison)
        judgement = verdict(measured[-1], self.expected, self.why_not)
        lines = Before(before=benchmark_lines(comparison), before_note=BENCHMARK)
        return self._case(judgement, self.before or lines, measured)

    def without_cuda(self, reason: str) -> Case:
        """The case on a machine that cannot measure it."""
        return self._case(needs_cuda(reason), NOTHING_RAN)

    def unmeasured(self, reason: str) -> Case:
        """The case where something else is missing."""
        judgement = Judgement(verdict="cannot tell", reason=reason, decided_by="")
        return self._case(judgement, self.before or NOTHING_RAN)

    def _case(
        self, judgement: Judgement, before: Before, measured: tuple[MeasuredRow, ...] = ()
    ) -> Case:
        return Case(
            name=self.name,
            claim=self.claim,
            change=self.change,
            measured=measured,
            published=self.published,
            **before,
            **judgement,
        )
