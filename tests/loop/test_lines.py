"""Planted time in real loops: its share and its line come back, without an audit."""

import sys
import time
from pathlib import Path

import pytest
import torch
from support.loops import quiet
from torch.utils.data import DataLoader

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts.lines import SampledLines
from trainperf.recording import line_sampler as sampler


SPENT: dict[str, float] = {}
"""Seconds by function."""

LOOP: list[float] = []
"""Seconds of a whole loop: what its functions take, the loader, and what measuring costs."""

LINE = 0.25
"""How far the share of a line may be off: a hundred samples have a standard error of 0.05, and on a
machine that others use they come late, which favours code that holds the interpreter."""


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second has enough samples."""
    monkeypatch.setattr(sampler, "BUDGET", 0.05)
    SPENT.clear()
    LOOP.clear()


def burn(name: str, ms: float) -> None:
    """Run Python for so long."""
    began = time.perf_counter()
    while time.perf_counter() - began < ms / 1e3:
        sum(range(50))
    SPENT[name] = SPENT.get(name, 0.0) + time.perf_counter() - began


def rest(name: str, ms: float) -> None:
    """Sleep for so long."""
    began = time.perf_counter()
    time.sleep(ms / 1e3)
    SPENT[name] = SPENT.get(name, 0.0) + time.perf_counter() - began


def histograms() -> None:
    """Work of every step in no phase, far longer than what a sample may come late."""
    burn("histograms", 40.0)


def gradients() -> None:
    """As `histograms`, but asleep."""
    rest("gradients", 20.0)


def validate() -> None:
    """Many naps of one function."""
    for _ in range(10):
        rest("validate", 6.0)


def trained(
    path: Path,
    *,
    each_step: bool = False,
    every_20th: bool = False,
    lines: bool = True,
) -> Summary:
    """A run of a loop that spends its time as told."""
    monitor = quiet(path, lines=lines)
    loader = DataLoader([torch.ones(4)] * (240 if each_step else 800), batch_size=4)  # type: ignore[arg-type]
    with monitor:
        began = time.perf_counter()
        for number, _ in enumerate(monitor.batches(loader)):
            for phase, ms in (("forward", 2.0), ("backward", 1.5), ("optimizer", 0.5)):
                with monitor.phase(phase):
                    burn("work", ms)
            if each_step:
                histograms()
                gradients()
            if every_20th and number % 20 == 19:
                validate()
            monitor.end_step()
        LOOP.append(time.perf_counter() - began)
    assert monitor.run is not None
    return summarize(Run.open(monitor.run))


@pytest.mark.slow
def test_time_in_no_phase_comes_back_with_its_share_and_its_lines(tmp_path: Path) -> None:
    """Two functions of it, one of which burns and one of which sleeps."""
    summary = trained(tmp_path, each_step=True)
    # What sleeps has a name of its own where Python tells the place of a call: 3.10 does not.
    named = {each.id: each for each in summary.findings[:2]}
    first = named["unnamed_time"]
    assert first.where.startswith("tests/loop/test_lines.py:")
    sleeps = named.get("python_in_step")
    owner = summary.owner("other")
    assert owner is not None
    truth = SPENT["histograms"] / (SPENT["histograms"] + SPENT["gradients"])
    assert owner.function in ("burn", "histograms"), summary.lines
    assert owner.fraction == pytest.approx(truth, abs=LINE)
    other = sum(SPENT[name] for name in ("histograms", "gradients"))
    lost = (first.fraction or 0.0) + ((sleeps and sleeps.fraction) or 0.0)
    assert lost == pytest.approx(other / LOOP[0], abs=0.05)


def test_validation_every_20_steps_comes_back_with_its_share_and_its_line(tmp_path: Path) -> None:
    """No audit, no trace, no phase around it."""
    summary = trained(tmp_path, every_20th=True)
    first = summary.findings[0]
    assert first.id == "slow_steps"
    assert summary.slow_steps is not None
    assert summary.slow_steps.every == 20
    line = summary.slow_steps.line
    assert line is not None
    assert line.function in ("validate", "rest")
    assert line.fraction >= 0.9
    assert first.fraction == pytest.approx(SPENT["validate"] / LOOP[0], abs=0.05)


@pytest.mark.parametrize("planted", [True, False], ids=["planted", "healthy"])
def test_a_sleep_in_forward_is_named_and_a_forward_of_operators_is_not(
    tmp_path: Path, *, planted: bool
) -> None:
    """A line of the user is the innermost frame of both; Python 3.10 has no place of a call."""
    monitor, weight = quiet(tmp_path), torch.randn(300, 300)
    with monitor:
        for _ in monitor.batches([weight] * 120):
            with monitor.phase("forward"):
                product = weight
                for _ in range(6):
                    product = (product @ weight).tanh()
                if planted:
                    rest("forward", 12.0)
            monitor.end_step()
    assert monitor.run is not None
    summary = summarize(Run.open(monitor.run))
    named = [finding for finding in summary.findings if finding.id == "python_in_step"]
    told_apart = planted and sys.version_info >= (3, 11)
    assert [finding.title.split()[0] for finding in named] == (["rest"] if told_apart else [])


def test_a_fit_may_go_without(tmp_path: Path) -> None:
    """Neither thread nor file."""
    summary = trained(tmp_path, lines=False)
    assert not (Path(summary.run.path) / SampledLines.file).exists()
    assert summary.lines == ()
