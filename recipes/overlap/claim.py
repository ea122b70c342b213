"""Claim of the overlap recipe before it is decided: what it says, and what its case will show."""

from collections.abc import Sequence
from dataclasses import dataclass

from recipes.cases.case import Case, MeasuredRow, PublishedFigure
from recipes.cases.verdicts import Expectation, Judgement, needs_cuda, verdict


@dataclass(frozen=True, slots=True, kw_only=True)
class OverlapClaim:
    """What is claimed of the second of two versions."""

    name: str
    claim: str
    expected: Expectation
    change: tuple[str, ...]
    why_not: str = ""
    """Why it may not hold, said only where it does not."""
    before: tuple[str, ...] = ()
    """Lines of trainperf's report, before the change."""
    published: PublishedFigure | None = None

    def decided(self, rows: Sequence[MeasuredRow]) -> Case:
        """The case of what was measured: both versions, the changed one last."""
        return self._case(verdict(rows[-1], self.expected, self.why_not), rows)

    def without_cuda(self, reason: str) -> Case:
        """The case on a machine that cannot measure it."""
        return self._case(needs_cuda(reason))

    def unmeasured(self, reason: str) -> Case:
        """The case where something else is missing."""
        return self._case(Judgement(verdict="cannot tell", reason=reason, decided_by=""))

    def _case(self, judgement: Judgement, rows: Sequence[MeasuredRow] = ()) -> Case:
        return Case(
            name=self.name,
            claim=self.claim,
            before=self.before,
            change=self.change,
            measured=tuple(rows),
            published=self.published,
            **judgement,
        )
