"""What every rule promises.  A new member of `RULES` is picked up by itself."""

from pathlib import Path

import pytest
from support.runs import MS, RankSpec, make_info, make_step, make_steps, summary_of

from trainperf.analysis.rules import RULES, Rule
from trainperf.analysis.rules.base import Evidence


EACH = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)


@EACH
def test_it_is_documented_and_lives_in_a_file_of_its_name(rule: Rule) -> None:
    """One rule, one file."""
    assert (rule.__doc__ or "").strip()
    assert rule.__module__.rpartition(".")[2] == rule.__name__


@EACH
def test_it_says_nothing_about_a_run_without_steps(rule: Rule, tmp_path: Path) -> None:
    """No data, no diagnosis."""
    assert rule(Evidence(summary=summary_of(tmp_path, [RankSpec(steps=[])]))) is None


@EACH
@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_it_says_nothing_about_a_healthy_run(rule: Rule, device: str, tmp_path: Path) -> None:
    """Compute-bound, little of everything else, every fact recorded."""
    facts = {
        "data_stall_ns": 100_000,
        "h2d_device_ns": 200_000,
        "h2d_bytes": 10**6,
        "h2d_tensors": 3,
        "lead_forward": 4,
        "lead_backward": 5,
        "samples": 8,
        "tokens_effective": 950,
        "tokens_padded": 1000,
        "attempts": 1,
        "overflows": 0,
        "loss_scale": 65536.0,
        "gc_ns": 10_000,
        "overhead_ns": 20_000,
    }
    steps = make_steps(
        400,
        facts=facts,
        data_wait=0.5,
        h2d=0.2,
        forward=15,
        backward=30,
        optimizer=4,
        callbacks=0.5,
        loop=0.5,
        other=0.1,
    )
    summary = summary_of(tmp_path, [RankSpec(steps=steps, info=make_info(device=device))])

    assert rule(Evidence(summary=summary)) is None


@EACH
def test_it_says_nothing_where_its_data_is_missing(rule: Rule, tmp_path: Path) -> None:
    """Only the core columns, from a healthy run."""
    summary = summary_of(tmp_path, [RankSpec(steps=make_steps(200, forward=20, backward=30))])

    assert rule(Evidence(summary=summary)) is None


@EACH
def test_a_healthy_pair_of_ranks_gives_no_finding(rule: Rule, tmp_path: Path) -> None:
    """Two ranks with a tail of 2 ms and noise of 0.2 ms."""
    specs = []
    for rank in (0, 1):
        steps = [
            make_step(
                index,
                forward=15,
                backward=30 + 0.2 * ((index + rank) % 2),
                loop=0.4,
                tags=int(index < 12),
                facts={"tail_ns": round((2 + 0.2 * ((index + rank) % 2)) * MS)},
            )
            for index in range(300)
        ]
        specs.append(RankSpec(steps=steps, info=make_info(rank=rank, world_size=2)))

    assert rule(Evidence(summary=summary_of(tmp_path, specs))) is None
