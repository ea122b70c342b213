"""When a claim holds: planted intervals, and planted times that are measured in turns."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from recipes.cases.case import CaseVerdict, MeasuredRow
from recipes.cases.measuring import exact, rows, turns
from recipes.cases.verdicts import Expectation, decide, decided, needs_cuda, verdict


def row(low: float | None, high: float | None, differs: str = "") -> MeasuredRow:
    """A version with that interval around its ratio."""
    ratio = None if low is None or high is None else (low * high) ** 0.5
    return MeasuredRow(
        what="after", value=1.0, ratio=ratio, low=low, high=high, against="before", differs=differs
    )


@pytest.mark.parametrize(
    ("low", "high", "expected", "outcome"),
    [
        (1.2, 1.4, "faster", "holds"),
        (1.2, 1.4, "slower", "does not hold here"),
        (1.2, 1.4, "equal", "does not hold here"),
        (0.6, 0.8, "faster", "does not hold here"),
        (0.6, 0.8, "slower", "holds"),
        (0.98, 1.03, "faster", "no difference"),
        (0.98, 1.03, "slower", "no difference"),
        (0.98, 1.03, "equal", "holds"),
        (1.01, 1.04, "faster", "no difference"),
        (1.01, 1.06, "faster", "holds"),
        (0.94, 0.99, "faster", "does not hold here"),
        (0.9, 1.1, "faster", "cannot tell"),
        (0.9, 1.1, "equal", "cannot tell"),
        (None, None, "faster", "cannot tell"),
    ],
)
def test_the_whole_interval_decides(
    low: float | None, high: float | None, expected: Expectation, outcome: CaseVerdict
) -> None:
    """On one side of 1, or all of it within 5 % either way; else nothing is shown."""
    assert decide(row(low, high), expected) == outcome
    assert decided(outcome) == (outcome != "cannot tell")


def test_versions_that_compute_something_else_decide_nothing() -> None:
    """However much faster they are; and the reason says by how much they differ."""
    judged = verdict(row(2.0, 3.0, differs="by 0.5 (tolerance 0.01)"), "faster", why="a guess")

    assert judged["verdict"] == "cannot tell"
    assert judged["reason"] == "its result differs: by 0.5 (tolerance 0.01)"


def test_the_reason_has_the_interval_and_says_why_only_where_the_claim_fails() -> None:
    """A claim that holds needs no excuse, and one that cannot be told has none."""
    holding, failing, open_ = (
        verdict(row(low, high), "faster", why="no vectors")["reason"]
        for low, high in ((1.5, 2.0), (0.5, 0.6), (0.5, 2.0))
    )

    assert holding == "after: 1.73× as fast as before (95 % CI 1.5–2)"
    assert failing.endswith("(95 % CI 0.5–0.6); no vectors")
    assert "no vectors" not in open_
    assert needs_cuda("no streams")["verdict"] == "needs CUDA"


def test_a_count_is_exact() -> None:
    """Half the bytes are twice as good, and no clock disturbs that."""
    before = MeasuredRow(what="pageable", value=200.0, unit="B")
    after = exact("pinned", 100.0, before)

    assert (after.ratio, after.low, after.high) == (2.0, 2.0, 2.0)
    assert verdict(after, "faster")["reason"] == "pageable takes 2.00× the bytes of pinned (exact)"


def _repeated(times: int) -> Callable[[Tensor], Tensor]:
    def work(x: Tensor) -> Tensor:
        for _ in range(times):
            result = x.cos()
        return result

    return work


def test_twenty_times_the_work_is_measured_as_slower() -> None:
    """Planted far beyond what a loaded machine does to either; the same result."""
    versions = {"once": _repeated(1), "twenty times": _repeated(20)}
    once, often = rows(turns(versions, torch.ones(20_000), seconds=0.2))

    assert once.ratio is None
    assert decide(often, "slower") == "holds"
    assert often.differs == ""
    assert often.rounds >= 7


def test_another_result_is_told() -> None:
    """Of another shape, or of other values."""
    same = {"x": lambda x: x, "2x": lambda x: 2 * x, "half": lambda x: x[:5]}
    _, other, half = rows(turns(same, torch.ones(10), seconds=0.01))

    assert other.differs.startswith("by 0.5")
    assert half.differs == "of another kind or shape"
