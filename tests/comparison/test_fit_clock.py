"""Runs whose cycles are known, and what the fit clock says of them."""

from pathlib import Path

import numpy as np
import pytest
from support.runs import RankSpec, make_gap, make_info, make_run_dir, make_step

from trainperf.analysis.run import parts, record_file
from trainperf.comparison.compare import compare
from trainperf.comparison.compared_run import ComparedRun, read_run
from trainperf.comparison.fit_clock import FIT_SAMPLES_PER_S, FIT_STEP_S
from trainperf.core.phases import Gap, Tag
from trainperf.core.stats.bootstrap import period_length
from trainperf.core.steps.records import GapRecord, StepRecord


def recorded(
    path: Path, steps: list[StepRecord], gaps: list[GapRecord], *, ranks: int = 1
) -> ComparedRun:
    """A run on disk, read back."""
    specs = [
        RankSpec(steps=steps, gaps=gaps, info=make_info(rank=rank, world_size=ranks))
        for rank in range(ranks)
    ]
    return read_run(make_run_dir(path / "trainperf", specs))


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


def value(run: ComparedRun, name: str) -> float | None:
    """Of a reading."""
    return run.summary.readings[name].value


def test_a_cycle_is_a_step_and_the_gaps_after_it(tmp_path: Path) -> None:
    """A validation of 100 ms every 20 steps makes the mean cycle 15 ms, the step stays 10."""
    gaps = [make_gap(Gap.VALIDATION, 100, after_step=index) for index in range(31, 412, 20)]
    run = recorded(tmp_path, plain(), gaps)

    assert value(run, FIT_STEP_S) == pytest.approx(0.015)
    assert value(run, FIT_SAMPLES_PER_S) == pytest.approx(8 / 0.015)
    assert value(run, "step_s") == pytest.approx(0.010, rel=0.002)


def test_what_happens_once_and_the_turns_of_another_are_apart(tmp_path: Path) -> None:
    """Start, end, a written trace, another training's turn: none is part of a cycle."""
    gaps = [
        make_gap(Gap.STARTUP, 5000),
        make_gap(Gap.PROFILER_DUMP, 5000, after_step=50),
        make_gap(Gap.OTHERS_TURN, 5000, after_step=60),
        make_gap(Gap.SHUTDOWN, 5000, after_step=411),
    ]

    assert value(recorded(tmp_path, plain(), gaps), FIT_STEP_S) == pytest.approx(0.010)


def test_compilation_traces_and_the_first_steps_of_a_turn_are_apart(tmp_path: Path) -> None:
    """With the gaps that follow them; a step after a validation is not."""
    apart = {50: int(Tag.RECOMPILED), 60: int(Tag.PROFILED), 70: int(Tag.OUT_OF_TURN)}
    gaps = [make_gap(Gap.CHECKPOINT, 4000, after_step=index) for index in (5, *apart)]
    steps = plain(tags={**apart, 80: int(Tag.AFTER_VALIDATION)})
    run = recorded(tmp_path, steps, gaps)

    assert value(run, FIT_STEP_S) == pytest.approx(0.010)
    assert run.summary.readings[FIT_STEP_S].n == 400 - len(apart)


def test_the_slowest_rank_is_waited_for(tmp_path: Path) -> None:
    """Two ranks do the work of both in a cycle of one."""
    run = recorded(tmp_path, plain(), [], ranks=2)

    assert value(run, FIT_STEP_S) == pytest.approx(0.010)
    assert value(run, FIT_SAMPLES_PER_S) == pytest.approx(1600)


def test_a_long_run_is_kept_in_cells_that_sum_to_it(tmp_path: Path) -> None:
    """Twenty thousand steps, validated every hundred."""
    gaps = [make_gap(Gap.VALIDATION, 500, after_step=index) for index in range(99, 20_000, 100)]
    run = recorded(tmp_path, plain(20_000), gaps)

    assert value(run, FIT_STEP_S) == pytest.approx(0.015, rel=1e-3)
    assert run.estimates[FIT_STEP_S].sampling < 0.02**2


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_gap_is_counted_whose_line_is_read_after_the_block_of_its_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ranks: int
) -> None:
    """A file is read in chunks; gaps after steps that are apart are apart there, too."""
    gaps = [make_gap(Gap.VALIDATION, 50, after_step=index) for index in (5, *range(21, 412, 10))]
    expected = value(recorded(tmp_path / "whole", plain(), gaps, ranks=ranks), FIT_STEP_S)
    for file in (tmp_path / "whole/trainperf").iterdir():
        header, *lines = file.read_bytes().splitlines(keepends=True)
        late = {gap.after_step: line for gap, line in zip(gaps, lines[412:], strict=False)}
        rows = [line + late.get(step, b"") for step, line in enumerate(lines[:412])]
        file.write_bytes(b"".join([header, *rows, *lines[412 + len(gaps) :]]))
    monkeypatch.setattr(record_file, "BLOCK_STEPS", 1)
    monkeypatch.setattr(parts, "CHUNK_BYTES", 160)

    run = read_run(tmp_path / "whole/trainperf")

    assert value(run, FIT_STEP_S) == pytest.approx(expected)
    assert expected == pytest.approx(0.015)


def test_blocks_hold_whole_periods() -> None:
    """Every 20th step is slow: a block has as many of them wherever it begins."""
    values = np.where(np.arange(400) % 20 == 7, 5.0, 1.0)

    assert period_length(values) % 20 == 0


def test_slow_steps_that_recur_evenly_are_no_chance(tmp_path: Path) -> None:
    """The mean of 20 whole periods is known to a per cent, however slow the slow steps."""
    gaps = [make_gap(Gap.VALIDATION, 400, after_step=index) for index in range(31, 412, 20)]
    run = recorded(tmp_path, plain(), gaps)

    assert run.estimates[FIT_STEP_S].sampling < 0.01**2


def test_a_change_between_the_steps_moves_the_fit_and_not_the_step(tmp_path: Path) -> None:
    """Validation every 20 steps costs half: without it the fit is 1.5 times as fast."""
    gaps = [make_gap(Gap.VALIDATION, 100, after_step=index) for index in range(31, 412, 20)]
    before, after = recorded(tmp_path / "a", plain(), gaps), recorded(tmp_path / "b", plain(), [])
    changes = {change.name: change for change in compare([before], [after]).readings}

    assert changes[FIT_STEP_S].ratio == pytest.approx(1 / 1.5)
    assert changes[FIT_STEP_S].verdict == "faster"
    assert changes["step_s"].ratio == pytest.approx(1.0)
