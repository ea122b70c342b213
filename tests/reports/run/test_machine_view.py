"""The machine in reports: its table, and its tracks under the timeline."""

from pathlib import Path

import numpy as np
import pytest
from analysis.summary.test_machine import hot, run_of, scattered
from support.machines import H200, plant_machine

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.reports.charts.series import SERIES, chart_of
from trainperf.reports.run.machine import of_machine
from trainperf.reports.run.page import load_page_data, render
from trainperf.reports.run.text import render as as_text


@pytest.fixture
def hot_run(tmp_path: Path) -> Path:
    """Two minutes, of which forty seconds were 12 % slower on a hot GPU."""
    run = run_of(tmp_path / "a" / "trainperf", scattered(120, hot(40, 80)))
    warm = {"sm_mhz": 1305.0, "reasons": 0x20, "celsius": 88.0}
    plant_machine(run, 120, devices=(H200,), device=lambda s: warm if 40 < s <= 80 else {})
    return run


def test_the_headline_says_what_the_machine_did_and_the_table_what_was_sampled(
    hot_run: Path,
) -> None:
    """No phase is to blame; the table has mean and worst, and the stretches."""
    summary = summarize(Run.open(hot_run))
    beside, slower = of_machine(summary.machine)
    rows = {row[0]: row[1:] for row in beside.rows}

    assert "were 12 % slower: the GPU lowered its clock (thermal). First: cool the GPU" in " ".join(
        as_text(summary).split()
    )
    assert rows["GPU clock"][1] == "1,305 MHz"
    assert rows["GPU temperature"][1] == "88 °C"
    assert any("NVIDIA H200" in note for note in beside.notes)
    assert slower.rows[0][1:] == ("thermal (GPU 0)", "12 %")


def test_a_run_without_a_machine_has_no_table(tmp_path: Path) -> None:
    """Nor any other word."""
    assert summarize(Run.open(run_of(tmp_path, scattered(20, lambda _: 1.0)))).machine is None


def test_clock_and_load_are_drawn_under_the_timeline(hot_run: Path) -> None:
    """The clock is the planted one at the planted steps."""
    data = load_page_data(Run.open(hot_run))
    drawn = {each.title: chart_of(each, data.groups, data.summary) for each in SERIES}
    (clock,) = drawn["GPU clock"].lines
    begins = data.groups.begins()
    page = render(data)

    assert set(clock.y[(begins >= 900) & (begins <= 1400)]) == {1305}
    assert np.nanmax(clock.y) == 1980
    for title in ("clock", "temperature", "power"):
        assert f"GPU {title}" in page
    assert "CPUs busy" in page
