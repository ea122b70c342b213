"""Runs whose cycles are known, and what the fit clock says of them."""

from pathlib import Path

import pytest
from support.runs import RankSpec, make_gap, make_info, make_run_dir, make_step

from trainperf.analysis.run import parts, record_file
from trainperf.analysis.run.directory import Run
from trainperf.comparison.compared_run import ComparedRun, read_run
from trainperf.comparison.fit_clock import FIT_SAMPLES_PER_S, FIT_STEP_S
from trainperf.core.phases import Gap, Tag
from trainperf.core.steps.records import GapRecord, StepRecord


def recorded(
    path: Path, steps: list[StepRecord], gaps: list[GapRecord], *, ranks: int = 1
) -> ComparedRun:
    """A run on disk, read back."""
    specs = [
        RankSpec(steps=steps, gaps=gaps, info=make_info(rank=rank, world_size=ranks))
        for rank in range(ranks)
    ]
    return read_run(Run.open(make_run_dir(path / "trainperf", specs)))


def plain(number: int = 412, *, tags: dict[int, int] | None = None) -> list[StepRecord]:
    """Steps of ten milliseconds with eight samples, the first twelve of them warm-up."""
    return [
        make_step(
            index,
            tags=int(Tag.WARMUP) if index < 12 else (tags or {}).get(index, 0),
            facts={"samples": 8},
            forward=10,
        )
        for index in range(number)
    ]


def test_a_cycle_is_a_step_and_the_gaps_after_it(tmp_path: Path) -> None:
    """A validation of 100 ms every 20 steps makes the mean cycle 15 ms, the step stays 10."""
    gaps = [make_gap(Gap.VALIDATION, 100, after_step=index) for index in range(31, 412, 20)]
    run = recorded(tmp_path, plain(), gaps)

    assert run.summary.value(FIT_STEP_S) == pytest.approx(0.015)
    assert run.summary.value(FIT_SAMPLES_PER_S) == pytest.approx(8 / 0.015)
    assert run.summary.value("step_s") == pytest.approx(0.010, rel=0.002)
    # The mean of 20 whole periods is known to a per cent, however slow what recurs.
    assert run.estimates[FIT_STEP_S].sampling < 0.01**2


def test_what_is_no_cycle_of_this_training_is_apart(tmp_path: Path) -> None:
    """Its start and end, compilation, traces, the turns of another, with the gaps that follow."""
    apart = {50: int(Tag.RECOMPILED), 60: int(Tag.PROFILED), 70: int(Tag.OUT_OF_TURN)}
    gaps = [
        make_gap(Gap.STARTUP, 5000),
        *(make_gap(Gap.CHECKPOINT, 4000, after_step=index) for index in (5, *apart)),
        make_gap(Gap.PROFILER_DUMP, 5000, after_step=90),
        make_gap(Gap.OTHERS_TURN, 5000, after_step=95),
        make_gap(Gap.SHUTDOWN, 5000, after_step=411),
    ]
    steps = plain(tags={**apart, 80: int(Tag.AFTER_VALIDATION)})
    run = recorded(tmp_path, steps, gaps)

    assert run.summary.value(FIT_STEP_S) == pytest.approx(0.010)
    assert run.summary.readings[FIT_STEP_S].n == 400 - len(apart)


def test_the_slowest_rank_is_waited_for(tmp_path: Path) -> None:
    """Two ranks do the work of both in a cycle of one."""
    run = recorded(tmp_path, plain(), [], ranks=2)

    assert run.summary.value(FIT_STEP_S) == pytest.approx(0.010)
    assert run.summary.value(FIT_SAMPLES_PER_S) == pytest.approx(1600)


def test_a_long_run_is_kept_in_cells_that_sum_to_it(tmp_path: Path) -> None:
    """Twenty thousand steps, validated every hundred."""
    gaps = [make_gap(Gap.VALIDATION, 500, after_step=index) for index in range(99, 20_000, 100)]
    run = recorded(tmp_path, plain(20_000), gaps)

    assert run.summary.value(FIT_STEP_S) == pytest.approx(0.015, rel=1e-3)
    assert run.estimates[FIT_STEP_S].sampling < 0.02**2


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_gap_is_counted_whose_line_is_read_after_the_block_of_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    """A file is read in chunks; gaps after steps that are apart are apart there, too."""
    gaps = [make_gap(Gap.VALIDATION, 50, after_step=index) for index in (5, *range(21, 412, 10))]
    whole = recorded(tmp_path / "whole", plain(), gaps, ranks=ranks)
    expected = whole.summary.value(FIT_STEP_S)
    for file in (tmp_path / "whole/trainperf").iterdir():
        header, *lines = file.read_bytes().splitlines(keepends=True)
        late = {gap.after_step: line for gap, line in zip(gaps, lines[412:], strict=False)}
        rows = [line + late.get(step, b"") for step, line in enumerate(lines[:412])]
        file.write_bytes(b"".join([header, *rows, *lines[412 + len(gaps) :]]))
    monkeypatch.setattr(record_file, "BLOCK_STEPS", 1)
    monkeypatch.setattr(parts, "CHUNK_BYTES", 160)

    run = read_run(Run.open(tmp_path / "whole/trainperf"))

    assert run.summary.value(FIT_STEP_S) == pytest.approx(expected)
    assert expected == pytest.approx(0.015)
