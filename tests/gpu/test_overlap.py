"""The overlap recipe on a device: the same results on streams, in graphs, and ahead of time."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.gpu import SIMULATED


pytestmark = [pytest.mark.gpu, pytest.mark.skipif(SIMULATED, reason="needs a CUDA device")]


def test_parts_on_several_streams_give_what_they_give_in_turn_however_often() -> None:
    """Also where memory of one call is used again by the next."""
    from recipes.overlap.cuda_streams import OnStreams, product

    parts = [torch.randn(1024, 1024, device="cuda") for _ in range(8)]
    on_streams = OnStreams(product)

    results = [on_streams(parts[: number + 1]) for number in range(8)]

    for part, result in zip(parts, results, strict=True):
        assert torch.equal(result, product(part))


def test_a_captured_chain_gives_what_it_gives_when_launched_for_every_input() -> None:
    """The input is copied into the graph's own memory."""
    from recipes.overlap.cuda_graphs import captured
    from recipes.overlap.launches import chain

    example = torch.randn(64, 64, device="cuda")
    replay = captured(chain, example)

    for _ in range(3):
        rows = torch.randn(64, 64, device="cuda")
        assert torch.equal(replay(rows), chain(rows))


def test_prefetched_copies_give_the_batches_that_copies_in_turn_give() -> None:
    """Pinned or not."""
    from recipes.overlap.cuda_copies import batches, copied_in_turn
    from trainperf.remedies import DevicePrefetcher

    for pinned in (True, False):
        host = batches(64, 5, pinned=pinned)
        pairs = zip(copied_in_turn(host), DevicePrefetcher(host, "cuda"), strict=True)
        assert all(torch.equal(turn, ahead) for turn, ahead in pairs)


def test_every_loop_is_watched_and_its_timeline_shows_the_device(tmp_path: Path) -> None:
    """The figures beside them are there once the loop is steady, which a short one need not be."""
    from recipes.overlap import cuda_copies, cuda_graphs, cuda_streams
    from recipes.overlap.effort import SMALL
    from recipes.overlap.watched import figures, timeline

    effort = replace(SMALL, steps=40)
    for module in (cuda_streams, cuda_copies, cuda_graphs):
        loops = module.watch(tmp_path / module.__name__, effort)
        timelines = [timeline(loop) for loop in loops]

        assert len(loops) >= 4
        assert len(figures(loops).rows) == len(loops)
        lanes = [[lane.name for lane in each.lanes] for each in timelines if each is not None]
        assert len(lanes) == len(loops)
        assert any("stream" in name for names in lanes for name in names), lanes


def test_every_case_that_needs_cuda_is_measured_here() -> None:
    """Whatever the verdict; the results of both versions agree."""
    from recipes.overlap import cuda_copies, cuda_graphs, cuda_streams
    from recipes.overlap.effort import SMALL

    cases = [
        case
        for module in (cuda_streams, cuda_copies, cuda_graphs)
        for case in module.cases((), SMALL)
    ]

    assert [case.name for case in cases if case.verdict == "needs CUDA"] == []
    assert [row.differs for case in cases for row in case.measured if row.differs] == []
