"""Batches that are waited for and not worked for, and those that rank 0 sends to the others."""

from pathlib import Path

import pytest
from support.runs import RankSpec, make_info, make_steps, summary_of

from trainperf.analysis.summary.schema import Summary
from trainperf.core.steps.records import Scalar, Totals
from trainperf.reports.run.text import render


DISPATCHER = "DataLoaderDispatcher"


def sleeping(path: Path, asleep: float, *, ranks: int = 1, workers: int = 0) -> Summary:
    """Batches of 40 ms before 2 ms of work on two CPUs, of which so much is only waited for."""
    ran = 1 - asleep * 40 / 42
    second = 1_000_000_000
    contention = {"span_ns": second, "ran_ns": round(ran * second), "waited_ns": 0}
    specs = [
        RankSpec(
            steps=make_steps(200, data_wait=40, forward=2),
            info=make_info(
                rank=rank,
                world_size=ranks,
                config={"num_workers": workers, "threads": 1},
                hardware={"cpu_count": 2},
            ),
            totals=Totals(at_step=200, contention=contention),
        )
        for rank in range(ranks)
    ]
    return summary_of(path, specs)


def test_workers_of_a_loader_that_was_seen_asleep_share_cpus(tmp_path: Path) -> None:
    """85 % of 40 ms at least are waited for: 6 ms of work and 2 of the model keep two CPUs for 4.

    Ten workers make a batch every 4 ms then; with a CPU for each there would be one.
    """
    finding = next(iter(sleeping(tmp_path, 0.9).findings))

    assert "DataLoader(num_workers=10, persistent_workers=True)" in finding.action
    assert any("85 % of it asleep" in fact for fact in finding.evidence)
    assert finding.gain_upper_bound == pytest.approx(42 / 4, rel=0.01)


@pytest.mark.parametrize(("asleep", "ranks", "workers"), [(0.2, 1, 0), (0.9, 2, 0), (0.9, 1, 2)])
def test_a_loader_that_works_or_is_not_known_to_sleep_has_a_cpu_for_each_worker(
    tmp_path: Path, *, asleep: float, ranks: int, workers: int
) -> None:
    """Ranks wait for each other too, and what workers do this thread does not tell."""
    finding = next(
        each
        for each in sleeping(tmp_path, asleep, ranks=ranks, workers=workers).findings
        if each.id == "data_wait"
    )

    assert "cache or preprocess" in finding.action
    assert not any("asleep" in fact for fact in finding.evidence)


@pytest.mark.parametrize(
    ("loop", "action"),
    [
        ("huggingface", 'TrainingArguments(accelerator_config={"dispatch_batches": False})'),
        ("plain", "DataLoaderConfiguration(dispatch_batches=False)"),
    ],
)
def test_where_rank_0_loads_for_all_each_rank_is_given_its_own_batches(
    tmp_path: Path, loop: str, action: str
) -> None:
    """What rank 0 spends on sending is in its callbacks and in no phase: no work of the user's."""
    specs = []
    for rank, (waited, sends) in enumerate(((10, 6), (22, 0))):
        config: dict[str, Scalar] = {"loop": loop, "num_workers": 0, "loader": DISPATCHER}
        phases = {"forward": 10.0, "backward": 10.0, "callbacks": sends, "other": sends}
        steps = make_steps(200, facts={"tail_ns": 1}, data_wait=waited, **phases)
        info = make_info(rank=rank, world_size=2, config=config, hardware={"cpu_count": 2})
        specs.append(RankSpec(steps=steps, info=info))
    summary = summary_of(tmp_path, specs)

    assert [finding.id for finding in summary.findings] == ["data_wait"]
    assert action in summary.findings[0].action
    assert summary.findings[0].expected_gain is None
    assert "rank 0 loads for all" in render(summary)
