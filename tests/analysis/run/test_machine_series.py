"""Series of a host over its attempts: when each of its samples speaks."""

import numpy as np

from trainperf.analysis.run.machine import MachineSeries, attempt_ns
from trainperf.core.artifacts.machine import MachineHeader


S = 1e9


def sampled(*at_s: list[float]) -> MachineSeries:
    """Samples of some attempts, each by its seconds."""
    at_ns = [attempt_ns(place) + S * second for place, own in enumerate(at_s) for second in own]
    header = MachineHeader(host="vm", cpus=2)
    return MachineSeries(
        header=header, at_ns=np.array(at_ns), values=np.empty((len(at_ns), 0), np.float32)
    )


def test_the_first_sample_of_an_attempt_says_nothing_of_the_one_before() -> None:
    """It speaks for as long as any other; what was not sampled in between is in no attempt."""
    series = sampled([1, 2, 3], [1, 2])
    second = attempt_ns(1)

    assert series.begins().tolist() == [True, False, False, True, False]
    assert (series.since_ns()[3] - second) / S == 0.0
    assert series.attempts_ns() == [(0.0, 3 * S), (second, second + 2 * S)]


def test_a_single_sample_speaks_for_its_moment() -> None:
    """Nothing tells since when."""
    assert sampled([5]).since_ns().tolist() == [5 * S]
