"""Series of a host over its attempts: which of its samples speaks of a moment."""

from pathlib import Path

import numpy as np
from msgspec.structs import replace
from support.machines import S, plant_machine
from support.runs import RankSpec, make_info, make_run_dir, make_step

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.machine import MachineSeries, attempt_ns, read_machines


def sampled(path: Path, *seconds: int) -> MachineSeries:
    """A sample per second, from 0 to so many in each attempt."""
    infos = [replace(make_info(), attempt=attempt) for attempt in range(len(seconds))]
    specs = [
        RankSpec(steps=[make_step(0, forward=10.0)], info=info, attempt=info.attempt)
        for info in infos
    ]
    run = make_run_dir(path, specs)
    for attempt, number in enumerate(seconds):
        plant_machine(run, number, attempt=attempt)
    ((series,), _) = read_machines(Run.open(run))
    return series


def test_the_first_sample_of_an_attempt_says_nothing_of_the_one_before(tmp_path: Path) -> None:
    """It speaks for as long as any other; what was not sampled in between is in no attempt."""
    series, second = sampled(tmp_path, 3, 2), attempt_ns(1)
    moments = np.array([-1.5 * S, -0.5 * S, 0.0, 2.5 * S, 3.5 * S])

    assert series.place_of(moments).tolist() == [-1, 0, 0, 3, -1]
    assert series.place_of(second + moments).tolist() == [-1, 4, 4, -1, -1]


def test_a_single_sample_speaks_for_its_moment(tmp_path: Path) -> None:
    """Nothing tells since when."""
    series = sampled(tmp_path, 0)

    assert series.since_ns.tolist() == series.at_ns.tolist()
