"""The tail of plain loops on two gloo ranks, against the moment the last bucket was sent."""

import json
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from support.loops import read
from support.ranks import start_two


pytestmark = [pytest.mark.ddp, pytest.mark.slow]

MS = 1e6

CASES = (
    "plain",
    "unused",
    "joins",
    "static_graph",
    "bucket_view",
    "accumulates",
    "reduces_each",
    "fp16",
    "power_sgd",
    "compiled",
    "compiled_wrapper",
    "in_turns",
)

Outcome = Callable[[str, int], "tuple[dict[str, Any], list[int]]"]


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """Of a case and a rank: what the test's own hook saw, and our tails."""
    root = tmp_path_factory.mktemp("tails")
    start_two(Path(__file__).parent / "tail_ranks.py", root)

    def of(case: str, rank: int) -> tuple[dict[str, Any], list[int]]:
        (run,) = (root / case).iterdir()
        steps = read(run / f"steps-rank{rank}.jsonl").steps
        tails = [step.facts["tail_ns"] for step in steps]
        return json.loads((root / f"{case}-{rank}.json").read_text()), tails

    return of


@pytest.mark.parametrize("case", CASES)
def test_every_step_has_a_tail_and_training_is_as_without_a_monitor(
    outcome: Outcome, case: str
) -> None:
    """The user's communication hook is called as often, and training is the same bit by bit.

    Tails are measured from the first step on, whichever parameters take part.
    """
    for rank in range(2):
        noted, tails = outcome(case, rank)
        assert None not in tails
        assert noted["faults"] == {}
        assert noted["same_parameters"]
        assert noted["buckets"][0] == noted["buckets"][1] > 0


@pytest.mark.parametrize("case", [name for name in CASES if name != "in_turns"])
def test_the_tail_begins_when_the_last_bucket_is_sent(outcome: Outcome, case: str) -> None:
    """Rank 0 waits 5 ms for the other in it; both tell the same of it, to a fraction of that."""
    for rank in range(2):
        noted, tails = outcome(case, rank)
        off = [tail - other for tail, other in zip(tails, noted["tails_ns"], strict=True)]
        assert abs(median(off)) < 0.5 * MS
    assert median(outcome(case, 0)[1]) > 2.5 * MS
