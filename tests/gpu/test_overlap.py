"""The overlap recipe on a device: the same results on streams, in graphs, and ahead of time."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch


pytestmark = pytest.mark.gpu


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
    from recipes.overlap.cuda_copies import batches, copied_in_turn, prefetched

    for pinned in (True, False):
        host = batches(64, 5, pinned=pinned)
        pairs = zip(copied_in_turn(host), prefetched(host), strict=True)
        assert all(torch.equal(turn, ahead) for turn, ahead in pairs)


@pytest.mark.real_clock
def test_every_case_that_needs_cuda_is_measured_here(tmp_path: Path) -> None:
    """Whatever the verdict; the results of both versions agree."""
    from recipes.overlap import cuda_copies, cuda_graphs, cuda_streams
    from recipes.overlap.effort import SMALL

    effort = replace(SMALL, paired_s=0.05)
    loops = cuda_copies.watch(tmp_path, effort)
    cases = (
        *cuda_streams.cases(effort),
        *cuda_copies.cases(loops, effort),
        *cuda_graphs.cases(None, effort),
    )

    assert [case.name for case in cases if case.verdict == "needs CUDA"] == []
    assert [row.differs for case in cases for row in case.measured if row.differs] == []
