"""Two gloo ranks under Lightning, only one of which has trainperf: no collective of ours."""

from pathlib import Path

import pytest
import torch
from support.ranks import start_two


pytestmark = [pytest.mark.ddp, pytest.mark.slow]

STEPS = 8


def test_a_rank_without_trainperf_neither_hangs_nor_trains_otherwise(tmp_path: Path) -> None:
    """A collective would wait for the other, or be matched with one of the training's own."""
    start_two(Path(__file__).parent / "lone_ranks.py", tmp_path)

    trained = {path.stem: torch.load(path) for path in sorted(tmp_path.glob("*.pt"))}
    assert len(trained) == 8
    for state in trained.values():
        assert all(torch.equal(state[name], value) for name, value in trained["none-0"].items())
    files = {
        name: [path.name for path in sorted((tmp_path / name).rglob("steps-rank*"))]
        for name in ("none", "first", "second", "both")
    }
    assert files == {
        "none": [],
        "first": ["steps-rank0.jsonl"],
        "second": ["steps-rank1.jsonl"],
        "both": ["steps-rank0.jsonl", "steps-rank1.jsonl"],
    }
    assert len({path.parent for path in (tmp_path / "both").rglob("steps-rank*")}) == 1
