"""Planted shares at the sampler's real budget, a thousandth of the time: slow, as it must be."""

import math
import time
from pathlib import Path

import pytest
import torch
from support.loops import quiet

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize


SECONDS = 45.0
SIGMAS = 5.0
"""Of a binomial share.  Right samples are further off than 3.3 once in a thousand runs, and others
on the machine have them come late, rather in a sleep, which lets the interpreter go."""


def rest() -> float:
    """Sleep, and say for how long."""
    began = time.perf_counter()
    time.sleep(0.006)
    return time.perf_counter() - began


def operators(weight: torch.Tensor) -> float:
    """Some milliseconds of matrix products, and how many."""
    began = time.perf_counter()
    product = weight
    while time.perf_counter() - began < 0.004:
        product = (product @ weight).tanh()
    return time.perf_counter() - began


@pytest.mark.slow
def test_a_planted_share_comes_back_within_its_binomial_interval(tmp_path: Path) -> None:
    """A sleep beside operators in forward: its share of the samples, and what they are called."""
    monitor, weight = quiet(tmp_path), torch.randn(200, 200)
    asleep_s = working_s = 0.0
    began = time.perf_counter()
    with monitor:
        for _ in monitor.batches(iter(lambda: weight, None)):
            with monitor.phase("forward"):
                asleep_s += rest()
                working_s += operators(weight)
            monitor.end_step()
            if time.perf_counter() - began > SECONDS:
                break
    summary = summarize(Run.open(monitor.run))
    (forward,) = (lines for lines in summary.lines if lines.slot == "forward")
    assert forward.samples >= 100
    assert forward.host.names == ("time.sleep",)
    assert forward.host.line.function == "rest"
    truth = asleep_s / (asleep_s + working_s)
    error = math.sqrt(truth * (1 - truth) / forward.samples)
    assert forward.host.line.fraction == pytest.approx(truth, abs=SIGMAS * error)
