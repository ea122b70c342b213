"""Simulated jobs: waits follow from arrivals, and what is planted comes back in the files."""

from pathlib import Path

import numpy as np
import pytest
from support.late import named
from support.traces import TRACES, needs_traces

from scripts.simulation import records, traces
from scripts.simulation.arrivals import Job, Plant, Simulation, Steps, step_s
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.ranks import saved_s
from trainperf.traces.job_report import report


JOBS = [(loop, device) for loop in ("lightning", "plain") for device in ("cpu", "cuda")]
each_kind = pytest.mark.parametrize(("loop", "device"), JOBS)


def all_steps(job: Job) -> list[Steps]:
    """The job in chunks of seven steps, which divide nothing."""
    return list(Simulation(job).chunks(7))


@each_kind
def test_the_phases_of_each_rank_tile_its_time(loop: str, device: str) -> None:
    """Every step begins where the one before ended, over the borders of chunks too."""
    chunks = all_steps(Job(ranks=5, steps=30, loop=loop, device=device))

    starts = np.concatenate([chunk.start_ns for chunk in chunks])
    walls = np.concatenate([chunk.wall_ns for chunk in chunks])

    assert (starts[:-1] + walls[:-1] == starts[1:]).all()
    assert min(int(phase.min()) for chunk in chunks for phase in chunk.phases_ns) >= 0


@each_kind
@pytest.mark.parametrize("piece", ["forward", "callbacks_end"])
def test_what_is_planted_lengthens_the_step_of_all_ranks(
    loop: str, device: str, piece: str
) -> None:
    """By as much as it is, or less where a device's queue of work covers a part of it."""
    job = Job(
        ranks=6,
        steps=80,
        loop=loop,
        device=device,
        plants=(Plant(ranks=(4,), piece=piece, delay_ms=40),),
    )

    longer_ms = 1e3 * (step_s(job) - step_s(job.healthy()))

    assert 10 < longer_ms < 42
    if device == "cpu":
        assert longer_ms > 37


def test_the_files_tell_what_was_planted(tmp_path: Path) -> None:
    """Read as any run: all steps of all ranks, and the late rank with its cause."""
    job = Job(ranks=9, steps=120, plants=(Plant(ranks=(5,), piece="data_wait", delay_ms=20),))
    records.write(job, tmp_path)

    summary = summarize(Run.open(tmp_path))

    assert (summary.run.ranks, summary.run.steps) == (tuple(range(9)), 120)
    assert summary.run.state == "finished"
    assert not summary.warnings
    backward = next(point for point in summary.synchronisation if point.point == "backward")
    assert named(backward) == (5, "data_wait")


@needs_traces
def test_the_late_rank_of_simulated_traces_is_named(tmp_path: Path) -> None:
    """In all steps but the first, whose first collective waits for what was before it."""
    job = traces.TraceJob(ranks=4, packed_bytes=1, late=2, delay_ms=5.0)
    traces.write(job, TRACES / "ddp_a100_rank0of2.pt.trace.json.gz", tmp_path)

    read = report([tmp_path])

    assert [rank.rank for rank in read.ranks] == [0, 1, 2, 3]
    assert [(late.step, late.rank) for late in read.stragglers] == [(5, 2), (6, 2)]
    assert all(late.wait_s == pytest.approx(0.005, abs=0.0001) for late in read.stragglers)


WORK_S = 0.045
"""Of a device in a step of the model: forward, backward and update."""


@pytest.mark.parametrize(
    ("delay_ms", "step", "waited"), [(0.0, 0.049, 0.0), (20.0, 0.069, 0.02), (70.0, 0.119, 0.07)]
)
def test_what_a_host_waits_for_its_own_device_is_work_and_not_synchronisation(
    tmp_path: Path, delay_ms: float, step: float, waited: float
) -> None:
    """Under Lightning hosts wait in the loop until the devices are done; three of four for a rank.

    With a late loader the three wait as long, and all of them for the reduction of 2 ms.
    """
    plants = (Plant(ranks=(1,), piece="data_wait", delay_ms=delay_ms),) if delay_ms else ()
    records.write(Job(ranks=4, steps=80, device="cuda", struck=0.0, plants=plants), tmp_path)

    shares = summarize(Run.open(tmp_path)).dimensions.shares
    assert shares["undivided"] == pytest.approx(WORK_S / step, rel=0.05)
    assert shares["synchronisation"] == pytest.approx((0.75 * waited + 0.0025) / step, rel=0.1)


def test_a_late_rank_that_devices_at_work_may_cover_is_predicted_at_its_best(
    tmp_path: Path,
) -> None:
    """A callback after backward holds up hosts; their devices have most of their work left."""
    late = Plant(ranks=(1,), piece="callbacks_end", delay_ms=40)
    job = Job(ranks=4, steps=80, device="cuda", struck=0.0, plants=(late,))
    records.write(job, tmp_path)

    summary = summarize(Run.open(tmp_path))

    assert {late.rank for point in summary.synchronisation for late in point.late} == {1}
    without_s = summary.value("step_mean_s") - saved_s(summary, "named_s")
    assert without_s <= 1.01 * step_s(job.healthy())
