"""Losses of two runs at equal work, planted."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from support.runs import RankSpec, make_info, make_run_dir, make_step

from trainperf.analysis.run.directory import Run
from trainperf.comparison.loss_parity import LossCurve, compare_losses, curve_of


def curve(level: float, *, batch: int = 8, steps: int = 400, drop: float = 4.0) -> LossCurve:
    """A loss that falls to *level* as the samples grow, whatever the batch."""
    samples = np.cumsum(np.full(steps, float(batch)))
    return LossCurve(loss=level + drop * np.exp(-samples / 500), work={"samples": samples})


def written(path: Path, losses: Sequence[float | None], *, samples: int = 8, ranks: int = 1) -> Run:
    """A run of these losses."""
    steps = [
        make_step(index, forward=10, facts={"loss": loss, "samples": samples})
        for index, loss in enumerate(losses)
    ]
    infos = [make_info(rank=rank, world_size=ranks) for rank in range(ranks)]
    return Run.open(make_run_dir(path, [RankSpec(steps=steps, info=info) for info in infos]))


def noisy(seed: int) -> LossCurve:
    """A loss that jumps about by most of itself."""
    return replace(curve(2.0), loss=2.0 * np.random.default_rng(seed).uniform(0.2, 1.8, 400))


def uneven() -> LossCurve:
    """Sixty steps of which some do ten times the work of others."""
    work = np.cumsum(np.random.default_rng(3).lognormal(3.0, 0.8, 60))
    return LossCurve(loss=2.0 + 4.0 * np.exp(-work / 500), work={"samples": work})


UNEVEN, SILENT = uneven(), replace(curve(2.0), loss=np.full(400, np.nan))

PAIRS: dict[str, tuple[LossCurve, LossCurve, str, str]] = {
    "half as many steps of twice the batch": (
        curve(2.0, batch=16, steps=200),
        curve(2.0, batch=8),
        "same",
        "after 3,200 samples",
    ),
    "as many steps of twice the batch have seen more": (
        curve(2.0, batch=16),
        curve(2.0, batch=8),
        "same",
        "after 3,200 samples",
    ),
    # The tolerance was fixed beforehand, and on both sides.
    **{
        f"{1e2 * (factor - 1):.1f} % {side}": (
            curve(2.0 * factor**sign, drop=0.0),
            curve(2.0, drop=0.0),
            verdict,
            "",
        )
        for factor, verdict in ((1.015, "same"), (1.03, "differs"))
        for side, sign in (("above", 1), ("below", -1))
    },
    "two that jump about": (noisy(0), noisy(1), "unknown", ""),
    # One part in a million against two: both have learned it.
    "a loss that has vanished": (
        curve(2e-6, drop=1.0, steps=4000),
        curve(1e-6, drop=1.0, steps=4000),
        "same",
        "",
    ),
    "a loss that is no number any more": (
        replace(curve(2.0), diverged="NaN since step 3"),
        curve(2.0),
        "differs",
        "NaN since step 3",
    ),
    "steps of unlike sizes": (UNEVEN, UNEVEN, "same", ""),
    **{
        f"steps of unlike sizes against even ones of {batch}": (
            UNEVEN,
            curve(2.0, batch=batch, steps=round(UNEVEN.work["samples"][-1] / batch) + 1),
            "same",
            "",
        )
        for batch in (8, 16)
    },
    # The last half of 36 steps is eighteen.
    "too few steps": (curve(2.0, steps=36), curve(2.0, steps=36), "unknown", "fewer than 20"),
    # That there are too few steps would be no help.
    "loops that are measured from outside": (SILENT, SILENT, "unknown", "end_step(loss)"),
    "one of them": (curve(2.0), SILENT, "unknown", "fewer than 20 steps"),
}


@pytest.mark.parametrize(("ours", "theirs", "verdict", "says"), PAIRS.values(), ids=PAIRS)
def test_losses_are_compared_at_equal_work(
    ours: LossCurve, theirs: LossCurve, verdict: str, says: str
) -> None:
    """Or it is said why they are not."""
    found = compare_losses([ours], [theirs])

    assert (found.verdict, found.tolerance) == (verdict, 0.02)
    assert says in found.why
    if "after 3,200 samples" in says:
        assert found.difference == pytest.approx(0.0, abs=1e-3)


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
    verdicts = [
        compare_losses(
            [curve(2.0 + 2.0 * noise * times + more, drop=0.0) for more in scatter], theirs
        )
        for times in (1.2, 1.7)
    ]

    assert [answer.verdict for answer in verdicts] == ["unknown", "differs"]


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
    assert compare_losses([curve_of(one)], [curve_of(two)]).verdict == "same"
