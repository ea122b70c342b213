"""What a step would be without its delays, and where the time of all devices went."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from support.runs import MS, WARMUP_STEPS, RankSpec, make_gap, make_info, make_steps, summary_of

from trainperf.analysis.summary.schema import Summary
from trainperf.core.phases import Gap
from trainperf.core.steps.records import Scalar
from trainperf.reports.run.ranks_lost import of_job, ranks_lost


def job(
    path: Path,
    *,
    device: str = "cpu",
    steps: int = 100,
    hardware: Mapping[str, Scalar] | None = None,
) -> Summary:
    """Four ranks, steps of 100 ms: rank 3 waits 25 ms longer for data than the others' 5."""
    specs = []
    for rank in range(4):
        late = 25.0 * (rank == 3)
        tail = 30.0 - late
        planted = make_steps(
            steps,
            data_wait=5 + late,
            forward=25,
            backward=40 + tail,
            facts={"tail_ns": round(tail * MS)},
        )
        info = make_info(
            rank=rank, world_size=4, config={"loop": "plain"}, device=device, hardware=hardware
        )
        gaps = [make_gap(Gap.CHECKPOINT, 2000)]
        specs.append(RankSpec(steps=planted, info=info, gaps=gaps))
    return summary_of(path, specs)


def test_without_the_late_rank_a_step_is_what_the_others_need(tmp_path: Path) -> None:
    """100 ms, of which 25 are lost to rank 3; the reduction itself takes 5."""
    predicted = job(tmp_path).what_if

    assert predicted is not None
    assert predicted.ranks == (3,)
    assert predicted.step_s == pytest.approx(0.100)
    assert predicted.without_ranks_s == pytest.approx(0.075)
    assert predicted.even_s == pytest.approx(0.075)
    assert predicted.hidden_s == pytest.approx(0.095)


def test_what_is_predicted_has_an_interval(tmp_path: Path) -> None:
    """On a host 2 ms for caches, or the 5 ms of the transfer; on a device what steps vary by."""
    host, device = (job(tmp_path / kind, device=kind).what_if for kind in ("cpu", "cuda"))

    assert host is not None
    assert device is not None
    assert (host.below_s, host.above_s) == (pytest.approx(0.002), pytest.approx(0.005))
    assert (device.below_s, device.above_s) == pytest.approx((0.0, 0.0), abs=1e-9)


def test_ranks_that_share_cpus_may_need_longer_without_the_wait(tmp_path: Path) -> None:
    """Four ranks of one thread on two CPUs: what they compute at once may take twice as long."""
    predicted = job(tmp_path, hardware={"cpu_count": 2, "local_world_size": 4}).what_if

    assert predicted is not None
    assert predicted.below_s == pytest.approx(0.002)
    assert predicted.above_s == pytest.approx(predicted.without_ranks_s)


def test_too_few_steps_have_no_interval(tmp_path: Path) -> None:
    """What they say of the mean is not known."""
    predicted = job(tmp_path, steps=WARMUP_STEPS + 19).what_if

    assert predicted is not None
    assert predicted.below_s is predicted.above_s is None


def test_the_time_of_all_devices_has_one_owner_each(tmp_path: Path) -> None:
    """What the late rank waits for data beyond the others is the stragglers', and not data's."""
    spent = job(tmp_path).device_time

    assert spent is not None
    assert spent.whole_s == pytest.approx(4 * 12.0)
    assert spent.parts_s == pytest.approx(
        {
            "stragglers": 10.0,
            "data stall": 2.0,
            "reductions": 2.0,
            "steps": 26.0,
            "checkpoint": 8.0,
        }
    )
    assert sum(spent.parts_s.values()) == pytest.approx(spent.whole_s)


def test_the_sentences_name_rank_share_and_hours(tmp_path: Path) -> None:
    """And the finding says whom to look at, and why."""
    summary = job(tmp_path)
    finding = next(each for each in summary.findings if each.id == "straggler")

    assert finding.title == "25 % of the step is lost to stragglers; rank 3, data wait"
    step, hours = ranks_lost(summary)
    assert step.startswith(
        "step 100 ms: 75.0 ms (73.0–80.0) if rank 3 were as fast as the median rank"
    )
    assert hours.startswith("of 48.0 rank-seconds 10.0 were lost to stragglers, 8.0 to checkpoints")
    assert [row[0] for row in of_job(summary)[0].rows][:2] == [
        "steps, apart from that",
        "stragglers",
    ]


def test_one_rank_loses_nothing_to_others(tmp_path: Path) -> None:
    """Its own ledger says where the fit went."""
    summary = summary_of(tmp_path, [RankSpec(steps=make_steps(100, forward=25))])

    assert summary.what_if is None
    assert summary.device_time is None
    assert ranks_lost(summary) == []
    assert of_job(summary) == []
