"""More threads and workers than CPUs: reported cases, planted, and healthy near misses."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from support.runs import RankSpec, make_info, make_steps, summary_of

from trainperf.analysis.doctor.base import Case
from trainperf.analysis.doctor.input import loader
from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import Finding
from trainperf.core.steps.records import Totals


SECOND = 10**9
RANKS = 8


def counted(
    waited: float = 0.0,
    *,
    ran: float = 0.2,
    workers: float | None = None,
    together: float = 4.0,
    preemptions: int = 0,
) -> dict[str, int]:
    """Ten seconds of a rank: shares of its thread's time, and of its workers', CPUs they used."""
    sums = {
        "span_ns": 10 * SECOND,
        "ran_ns": round(ran * 10 * SECOND),
        "waited_ns": round(waited * 10 * SECOND),
        "preemptions": preemptions,
    }
    if workers is not None:
        sums["workers_ran_ns"] = round(together * 10 * SECOND)
        sums["workers_waited_ns"] = round(sums["workers_ran_ns"] * workers / (1 - workers))
    return sums


def summary(  # noqa: PLR0913 what a header says
    path: Path,
    contention: Mapping[str, int],
    *,
    cpus: int,
    workers: int = 0,
    device: str = "cpu",
    ranks: int = RANKS,
    threads: int = 1,
    stall: float = 0.0,
) -> Summary:
    """Two hundred equal steps of 20 ms, or more by what the device stalls for data."""
    hardware = {"cpu_count": cpus, "host_cpus": cpus, "cpu_mask": f"0-{cpus - 1}", "host": "a"}
    steps = make_steps(200, data_wait=20 * stall, forward=20, facts={"data_stall_ns": 20e6 * stall})
    specs = [
        RankSpec(
            steps=steps,
            info=make_info(
                rank=rank,
                world_size=ranks,
                device=device,
                config={"num_workers": workers},
                hardware={**hardware, "threads": threads},
            ),
            totals=Totals(at_step=200, contention=dict(contention)),
        )
        for rank in range(ranks)
    ]
    return summary_of(path, specs)


def finding(of: Summary) -> Finding | None:
    """Of the rule, among all."""
    return next((each for each in of.findings if each.id == "oversubscription"), None)


def test_eight_ranks_on_two_cpus_are_told_to_have_a_cpu_each(tmp_path: Path) -> None:
    """Reported: ten times slower.  Of a rank's time its thread ran a tenth: at most 10×."""
    told = finding(summary(tmp_path, counted(0.5, ran=0.1, preemptions=3000), cpus=2))

    assert told is not None
    assert told.title == (
        "8 ranks with 1 thread each on 2 CPUs: a training thread waits for one 50 % of the time"
    )
    assert told.advice == "Give every rank a CPU"
    assert "8 CPUs or more" in told.action
    assert "start 2 ranks" in told.action
    assert told.gain_upper_bound == pytest.approx(10)
    assert "300 involuntary context switches per second" in told.evidence


def test_thirty_two_workers_of_each_of_eight_ranks_on_32_cpus_are_told_to_be_four(
    tmp_path: Path,
) -> None:
    """Reported: four fixed it.  The loader is not told to make its samples cheaper instead."""
    of = summary(
        tmp_path, counted(0.03, workers=0.8), cpus=32, workers=32, device="cuda", stall=1.0
    )
    told = finding(of)

    assert told is not None
    assert told.action.startswith(
        "DataLoader(num_workers=4, persistent_workers=True) on every rank"
    )
    assert "workers wait for a CPU 80 % of the time" in told.title
    assert told.fraction == pytest.approx(0.5)
    assert "data_wait" not in {each.id for each in of.findings}
    assert loader(Case(evidence=Evidence(summary=of))).status == "fail"


def test_workers_that_sleep_and_leave_cpus_idle_are_not_too_many(tmp_path: Path) -> None:
    """They wake together, and wait for each other; the steps wait for what they sleep for."""
    waits = counted(0.03, ran=0.3, workers=0.6, together=0.4)
    of = summary(tmp_path, waits, cpus=2, workers=15, device="cuda", ranks=1, stall=1.0)

    assert finding(of) is None
    assert "data_wait" in {each.id for each in of.findings}


def test_threads_and_workers_of_one_rank_divide_its_cpus(tmp_path: Path) -> None:
    """Eight threads and four workers on four CPUs."""
    told = finding(
        summary(tmp_path, counted(0.3, workers=0.6), cpus=4, workers=4, threads=8, ranks=1)
    )

    assert told is not None
    assert "num_workers=2" in told.action
    assert "set_num_threads(2)" in told.action
    assert told.fraction == pytest.approx(0.3)


def test_as_many_workers_as_cpus_are_told_to_leave_one_to_the_thread_that_launches(
    tmp_path: Path,
) -> None:
    """There is always something to write."""
    told = finding(
        summary(tmp_path, counted(0.3, workers=0.6), cpus=2, workers=2, device="cuda", ranks=1)
    )

    assert told is not None
    assert told.advice == "Use fewer workers"
    assert told.action == "DataLoader(num_workers=1, persistent_workers=True), for 2 CPUs"


def test_more_workers_than_cpus_that_only_wait_for_a_disk_are_healthy(tmp_path: Path) -> None:
    """They do not lack a CPU, and no step waits for them."""
    idle = summary(tmp_path, counted(0.02, workers=0.05), cpus=4, workers=8, device="cuda", ranks=1)

    assert finding(idle) is None


def test_workers_that_wait_for_a_cpu_and_keep_up_cost_nothing(tmp_path: Path) -> None:
    """No step waits for data."""
    ahead = summary(tmp_path, counted(0.02, workers=0.8), cpus=4, workers=8, device="cuda", ranks=1)

    assert finding(ahead) is None


def test_ranks_that_fit_are_not_told_of_programs_of_others(tmp_path: Path) -> None:
    """Eight ranks on eight CPUs wait for a CPU: somebody else has it."""
    assert finding(summary(tmp_path, counted(0.4), cpus=8)) is None


def test_where_the_system_counts_nothing_nothing_is_told(tmp_path: Path) -> None:
    """Eight ranks on two CPUs, recorded on a Mac."""
    assert finding(summary(tmp_path, {}, cpus=2)) is None
