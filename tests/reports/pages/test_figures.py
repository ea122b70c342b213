"""What the figures of a page hold: exact counts, exact places, and why a figure is not there."""

import re
from pathlib import Path

import pytest
from support.pages import Page
from support.runs import RankSpec, make_info, make_run_dir, make_step

from scripts.simulation import records
from scripts.simulation.arrivals import Job, Plant
from trainperf.analysis.run.directory import Run
from trainperf.core.formatting.html.figures import Axis
from trainperf.core.formatting.units import Scale
from trainperf.core.phases import Tag
from trainperf.reports.run.page import load_page_data, render


IN_MS = Scale.of(0.0557)
IN_GIB = Scale.of(2.0**30, "B")


@pytest.mark.parametrize(
    ("axis", "ticks"),
    [
        (Axis(low=0.0, high=0.0557, unit=IN_MS), "0, 20 ms, 40 ms"),
        (Axis(low=0.0, high=3 * 2.0**30, unit=IN_GIB), "0, 1 GiB, 2 GiB, 3 GiB"),
        (Axis(low=0.0, high=0.4, unit=Scale.of(0.4, "1")), "0, 10 %, 20 %, 30 %, 40 %"),
        (Axis(low=0.0, high=5000.0, unit=Scale.of(5000.0, "")), "0, 1 k, 2 k, 3 k, 4 k, 5 k"),
        (Axis(low=1e-3, high=1e3, logarithmic=True), "0.001, 0.1, 10, 1,000"),
        (Axis(low=0.0, high=1.0, whole=True), "0, 1"),
    ],
)
def test_ticks_are_round_in_the_unit_they_are_written_in(axis: Axis, ticks: str) -> None:
    """Durations in milliseconds, bytes in powers of two, a wide range in powers of ten."""
    assert ", ".join(axis.unit.tick(value) for value in axis.ticks()) == ticks


def test_a_value_beyond_an_axis_is_drawn_at_its_end() -> None:
    """Nothing is drawn outside of a picture."""
    linear = Axis(low=0.0, high=10.0)
    wide = Axis(low=0.01, high=100.0, logarithmic=True)

    assert [linear.at(value) for value in (-1.0, 0.0, 2.5, 10.0, 99.0)] == [0, 0, 0.25, 1, 1]
    assert [wide.at(value) for value in (0.0, 0.01, 1.0, 1e9)] == [0, 0, 0.5, 1]


def test_twenty_steps_on_eight_ranks_have_a_page(tmp_path: Path) -> None:
    """One rank waits for nobody at the all-reduce: it is the coloured one, and the others wait."""
    ranks = []
    for rank in range(8):
        last = rank == 3
        steps = [
            make_step(
                index,
                tags=int(Tag.WARMUP) if index < 4 else 0,
                data_wait=30 if last else 10,
                forward=10,
                backward=20 if last else 40,
                facts={"tail_ns": (2 if last else 22) * 1_000_000},
            )
            for index in range(20)
        ]
        ranks.append(RankSpec(steps=steps, info=make_info(rank=rank, world_size=8)))
    page = render(load_page_data(Run.open(make_run_dir(tmp_path / "eight" / "trainperf", ranks))))
    part = page.split("rank by rank")[1].split("</table>")[0]
    rows = [re.sub("<[^>]*>", " ", row).split("  ") for row in part.split("<tr>")[2:]]
    cells = [[cell.strip() for cell in row if cell.strip()] for row in rows]

    assert [row[0] for row in cells] == ["typical", *map(str, range(8))]
    assert cells[1][-4:-2] == ["█ 22.0 ms", "–"]
    assert cells[4][-4:-2] == ["2.0 ms", "█ 20.0 ms"]


def test_the_page_of_many_ranks_is_no_larger_than_that_of_some(tmp_path: Path) -> None:
    """A row for the one that is late."""
    plant = Plant(ranks=(37,), piece="data_wait", delay_ms=30)
    pages = {}
    for ranks in (256, 512):
        records.write(Job(ranks=ranks, steps=40, plants=(plant,)), tmp_path / str(ranks))
        pages[ranks] = render(load_page_data(Run.open(tmp_path / str(ranks))))

    assert len(pages[512]) < 1.05 * len(pages[256])
    assert "of 512 ranks the 1 that differ most" in pages[512]
    assert '<td class="text">37</td>' in pages[512]


def test_a_chart_that_one_group_would_flatten_is_cut_off_and_says_so(tmp_path: Path) -> None:
    """The tail of the audited step is a hundred times that of the others."""
    ranks = [
        RankSpec(
            steps=[
                make_step(
                    index,
                    forward=10,
                    backward=20,
                    facts={"tail_ns": (900 if index == 20 else 5 + rank) * 1_000_000},
                )
                for index in range(100)
            ],
            info=make_info(rank=rank, world_size=2),
        )
        for rank in range(2)
    ]
    page = render(load_page_data(Run.open(make_run_dir(tmp_path / "two" / "trainperf", ranks))))

    assert "Beyond the picture: up to 900 ms." in Page(page).words
