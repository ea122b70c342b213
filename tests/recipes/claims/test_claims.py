"""The claims at toy size: each runs, shows what trainperf said, and is judged by its interval."""

import importlib
import multiprocessing
from pathlib import Path

import pytest
import torch

from recipes.cases.case import Case, load
from recipes.claims import NAMES
from recipes.claims.__main__ import main
from recipes.claims.bench import ClaimBench
from recipes.claims.im2col import direct, lowered
from recipes.claims.library_sort import bitonic


ON_A_GPU = {"occupancy", "pinned_copies", "fragmentation", "empty_cache"}
QUICK = {"padded_matmul", "library_sort", "im2col", "small_kernels", "item_every_step"}
"""The others start processes, compile, or train for seconds."""

EACH = [
    pytest.param(name, marks=() if name in QUICK | ON_A_GPU else pytest.mark.corpus)
    for name in NAMES
]


def run(name: str, out: Path) -> Case:
    """One claim at toy size."""
    bench = ClaimBench(out=out, small=True, seconds=0.02)
    return getattr(importlib.import_module(f"recipes.claims.{name}"), name)(bench)


@pytest.mark.parametrize("name", EACH)
@pytest.mark.filterwarnings("ignore")
def test_a_claim_is_run_measured_and_judged(name: str, tmp_path: Path) -> None:
    """With the change it is about; versions that are compared give the same result."""
    before = set(multiprocessing.active_children())
    case = run(name, tmp_path)

    assert set(multiprocessing.active_children()) <= before
    assert case.name == name
    assert case.claim.endswith(".")
    if name in ON_A_GPU and not torch.cuda.is_available():
        assert (case.verdict, case.measured) == ("needs CUDA", ())
        assert case.before_note
        return
    assert case.change
    assert case.before
    assert case.published is not None
    assert [row.differs for row in case.measured if row.differs] == []
    deciding = case.deciding
    assert deciding.low is not None
    assert deciding.rounds is not None
    assert case.reason.startswith(f"{deciding.what}: ")


def test_the_hand_written_versions_are_right() -> None:
    """A sort sorts, and both convolutions are the library's."""
    x = torch.randn(256)
    images, weight = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)
    expected = torch.nn.functional.conv2d(images, weight)

    assert torch.equal(bitonic(x), x.sort().values)
    torch.testing.assert_close(direct(images, weight), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(lowered(images, weight), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore")
def test_the_runner_leaves_what_was_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Named claims in the order of the list, printed, as JSON twice, and as a page."""
    threads, names = torch.get_num_threads(), ["empty_cache", "library_sort"]
    main([*names, "--size", "small", "--out", str(tmp_path), "--json", str(tmp_path / "x.json")])

    assert torch.get_num_threads() == threads
    kept = load(tmp_path / "claims.json")
    assert [case.name for case in kept.cases] == names[::-1]
    assert load(tmp_path / "x.json") == kept
    assert kept.cases[1].heading == "empty_cache() in every step"
    assert kept.cases[1].command == "python -m recipes.claims empty_cache"
    assert "2 claims, " in capsys.readouterr().out
    assert (tmp_path / "claims.html").is_file()
