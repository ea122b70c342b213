"""Losses of two runs at equal work, planted."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.runs import RankSpec, make_info, make_run_dir, make_step

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summary.loss_parity import (
    TOLERANCE,
    LossCurve,
    compare_losses,
    curve_of,
    parity,
)


def curve(level: float, *, batch: int = 8, steps: int = 400, drop: float = 4.0) -> LossCurve:
    """A loss that falls to *level* as the samples grow, whatever the batch."""
    samples = np.cumsum(np.full(steps, float(batch)))
    return LossCurve(loss=level + drop * np.exp(-samples / 500), work={"samples": samples})


def written(path: Path, losses: Sequence[float | None], *, samples: int = 8, ranks: int = 1) -> Run:
    """A run of these losses."""
    specs = []
    for rank in range(ranks):
        steps = [
            make_step(index, forward=10, facts={"loss": loss, "samples": samples})
            for index, loss in enumerate(losses)
        ]
        specs.append(RankSpec(steps=steps, info=make_info(rank=rank, world_size=ranks)))
    return Run.open(make_run_dir(path, specs))


def test_the_same_loss_at_the_same_work_matches() -> None:
    """In half as many steps of twice the batch."""
    found = compare_losses([curve(2.0, batch=16, steps=200)], [curve(2.0, batch=8, steps=400)])

    assert found.verdict == "same"
    assert found.unit == "samples"
    assert found.work == 3200.0
    assert found.difference == pytest.approx(0.0, abs=1e-3)


def test_equal_steps_of_unequal_batches_are_not_equal_work() -> None:
    """The larger batch has seen more after as many steps; that is not compared."""
    found = compare_losses([curve(2.0, batch=16, steps=400)], [curve(2.0, batch=8, steps=400)])

    assert found.verdict == "same"
    assert found.work == 3200.0


@pytest.mark.parametrize(("factor", "verdict"), [(1.015, "same"), (1.03, "differs")])
def test_the_tolerance_is_two_per_cent(factor: float, verdict: str) -> None:
    """Fixed beforehand, and on both sides."""
    assert TOLERANCE == 0.02
    up = compare_losses([curve(2.0 * factor, drop=0.0)], [curve(2.0, drop=0.0)])
    down = compare_losses([curve(2.0 / factor, drop=0.0)], [curve(2.0, drop=0.0)])

    assert (up.verdict, down.verdict) == (verdict, verdict)
    assert up.difference == pytest.approx(factor - 1)


@pytest.mark.parametrize(("steps", "every"), [(440, 10), (437, 1), (437, 10)])
def test_work_without_a_loss_at_an_end_counts_as_none(steps: int, every: int) -> None:
    """A log has a loss in every tenth step, and one run ends, or begins, between two of them."""

    def logged(steps: int, every: int, since: int = 0) -> LossCurve:
        number = np.arange(1, steps + 1)
        there = (number % every == 0) & (number > since)
        return LossCurve(loss=np.where(there, 2.0, np.nan), work={"samples": 8.0 * number})

    assert compare_losses([logged(steps, every)], [logged(437, 10)]).verdict == "same"
    late = compare_losses([logged(440, 1, since=300)], [logged(steps, every)])
    assert late.verdict != "differs"


def test_noise_larger_than_the_difference_decides_nothing() -> None:
    """Two runs that jump about by half their loss."""
    noisy = [curve(2.0, drop=0.0), curve(2.0, drop=0.0)]
    generator = np.random.default_rng(0)
    first, second = (
        LossCurve(loss=one.loss * generator.uniform(0.2, 1.8, len(one.loss)), work=one.work)
        for one in noisy
    )

    assert compare_losses([first], [second]).verdict == "unknown"


@pytest.mark.parametrize(
    ("seeds", "repeats", "level", "verdict"),
    [
        ((1, 2), 1, 0.1, "unknown"),
        ((1, 1), 1, 0.1, "differs"),
        ((1, 2), 1, 3.0, "differs"),
        ((1, 2), 3, 0.1, "differs"),
    ],
)
def test_single_runs_of_unlike_seeds_differ_only_by_much_of_what_was_learned(
    seeds: tuple[int, int], repeats: int, level: float, verdict: str
) -> None:
    """0.05 and 0.1 of a loss that began at 4 are nothing, unless it is repeated; 3 is no chance."""
    sides = [
        [replace(curve(value), seed=seed) for _ in range(repeats)]
        for value, seed in zip((level, 0.05), seeds, strict=True)
    ]
    answer = compare_losses(*sides)

    assert answer.verdict == verdict
    assert ("seeds differ" in answer.why) == (verdict == "unknown")


def test_two_repeats_show_little_of_how_much_runs_scatter() -> None:
    """Student's factor for their few degrees of freedom; 0.3 apart, 0.1 from repeat to repeat."""
    ours, theirs = (
        [curve(2.0 + more, drop=0.0) for more in side] for side in ([0.3, 0.4], [0.0, 0.1])
    )
    answer = compare_losses(ours, theirs)

    assert answer.verdict == "unknown"
    assert answer.noise == pytest.approx(4.303 * 0.05 * 2**0.5 / 2.05, rel=1e-3)


def test_a_difference_that_one_comparison_in_twenty_shows_is_no_difference() -> None:
    """Four repeats a side, 1.2 times the noise apart: it overrules any gain, so it must be sure."""
    scatter = np.array([-0.3, -0.1, 0.1, 0.3])
    theirs = [curve(2.0 + more, drop=0.0) for more in scatter]
    noise = compare_losses(theirs, theirs).noise
    assert noise is not None
    verdicts = [
        compare_losses(
            [curve(2.0 + 2.0 * noise * times + more, drop=0.0) for more in scatter], theirs
        )
        for times in (1.2, 1.7)
    ]

    assert [answer.verdict for answer in verdicts] == ["unknown", "differs"]


def test_a_loss_that_has_vanished_is_compared_with_where_it_began() -> None:
    """One part in a million against two: both have learned it."""
    run, baseline = curve(2e-6, drop=1.0, steps=4000), curve(1e-6, drop=1.0, steps=4000)

    assert compare_losses([run], [baseline]).verdict == "same"


def test_a_loss_that_is_no_number_any_more_differs() -> None:
    """Whatever it was before."""
    broken = LossCurve(loss=curve(2.0).loss, work=curve(2.0).work, diverged="NaN since step 3")

    assert compare_losses([broken], [curve(2.0)]).verdict == "differs"


@pytest.mark.parametrize(
    ("steps", "since"),
    [
        # The last fifth of 400 steps of eight samples.
        (400, 3200 - 0.2 * 3192),
        # That of ninety would be eighteen steps: the last twenty, or half of the run.
        (90, 8 * 71),
        (42, 8 * 23),
    ],
)
def test_what_is_compared_is_the_last_fifth_or_twenty_steps(steps: int, since: float) -> None:
    """Of runs of the same batch."""
    found = compare_losses([curve(2.0, steps=steps)], [curve(2.0, steps=steps)])

    assert (found.verdict, found.since, found.work) == ("same", pytest.approx(since), 8 * steps)


@pytest.mark.parametrize("batch", [8, 16])
def test_steps_of_unlike_sizes_are_compared_all_the_same(batch: int) -> None:
    """Sixty steps of which some do ten times the work of others, against ones of even size."""
    sizes = np.random.default_rng(3).lognormal(3.0, 0.8, 60)
    work = np.cumsum(sizes)
    uneven = LossCurve(loss=2.0 + 4.0 * np.exp(-work / 500), work={"samples": work})
    even = curve(2.0, batch=batch, steps=round(work[-1] / batch) + 1)

    assert compare_losses([uneven], [uneven]).verdict == "same"
    assert compare_losses([uneven], [even]).verdict == "same"


def test_too_few_steps_decide_nothing() -> None:
    """The last half of 36 steps is eighteen."""
    assert compare_losses([curve(2.0, steps=36)], [curve(2.0, steps=36)]).verdict == "unknown"


def test_runs_without_any_loss_say_how_they_get_one() -> None:
    """As loops that are measured from outside: that there are too few steps would be no help."""
    silent = LossCurve(loss=np.full(400, np.nan), work={"samples": np.arange(1.0, 401.0)})

    assert "end_step(loss)" in compare_losses([silent], [silent]).why
    assert "fewer than 20 steps" in compare_losses([curve(2.0)], [silent]).why


def test_the_curve_is_read_from_the_records(tmp_path: Path) -> None:
    """Mean over ranks, samples of all of them together; a step without a loss is a hole."""
    losses = [3.0, None, 1.0]
    found = curve_of(written(tmp_path / "run", losses, ranks=2))

    assert found.work["samples"].tolist() == [16.0, 32.0, 48.0]
    assert found.loss[[0, 2]].tolist() == [3.0, 1.0]
    assert np.isnan(found.loss[1])
    assert "effective tokens" not in found.work


def test_two_runs_on_disk_are_compared(tmp_path: Path) -> None:
    """A rank more, half the batch each: the same work a step."""
    losses = [2.0 + 3.0 / (1 + step) for step in range(200)]
    one = written(tmp_path / "one", losses, samples=16)
    two = written(tmp_path / "two", losses, samples=8, ranks=2)

    assert parity(one, two).verdict == "same"
