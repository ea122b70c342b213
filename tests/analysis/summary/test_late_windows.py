"""Timeline of who was late: every step is in one window, and windows stay few."""

from itertools import pairwise

import numpy as np
import pytest

from trainperf.analysis.summary.late_windows import MOST_RANKS, MOST_WINDOWS, LateWindows


def fed(steps: int, at_once: int, ranks: int = 3) -> LateWindows:
    """Rank 1 is late in the first half of the run, then a different one in every tenth step."""
    index = np.arange(100, 100 + 2 * steps, 2)
    half = np.arange(steps) < steps // 2
    last = np.where(half, 1, np.arange(steps) // 10 % ranks)
    late = half | (np.arange(steps) % 10 == 0)
    windows = LateWindows()
    lost_ns, left_ns = np.full(steps, 1_000_000), 1e6 * (50 + np.arange(steps) % 2)
    for begin in range(0, steps, at_once):
        part = slice(begin, begin + at_once)
        windows.add(index[part], last[part], late[part], lost_ns[part], left_ns[part])
    return windows


@pytest.mark.parametrize("steps", [1, 63, 64, 65, 1000, 4097])
def test_every_step_is_in_one_of_a_few_windows(steps: int) -> None:
    """In order, without a gap, and with all that was lost."""
    windows = fed(steps, 50).windows()

    assert len(windows) <= MOST_WINDOWS
    assert sum(window.steps for window in windows) == steps
    assert (windows[0].first_step, windows[-1].last_step) == (100, 98 + 2 * steps)
    assert all(a.last_step + 2 == b.first_step for a, b in pairwise(windows))
    assert sum(window.lost_s for window in windows) == pytest.approx(0.001 * steps)
    assert len({window.steps for window in windows[:-1]}) <= 1


@pytest.mark.parametrize("at_once", [1, 7, 4096])
def test_windows_are_the_same_however_the_steps_came(at_once: int) -> None:
    """Block by block or all at once."""
    assert fed(1000, at_once).windows() == fed(1000, 64).windows()


def test_the_timeline_tells_when_a_rank_was_late() -> None:
    """Rank 1 in the first half only, and most often of all."""
    windows = fed(1000, 100)
    first, *_, last = windows.windows()

    assert windows.often()[0] == 1
    assert first.late_steps == first.of_ranks[0] == first.steps
    assert last.late_steps <= 2
    assert last.of_ranks[0] <= 1


def test_of_many_late_ranks_the_most_frequent_are_told() -> None:
    """The others count as any rank."""
    windows = fed(4000, 100, ranks=200)

    assert len(windows.often()) == MOST_RANKS
    assert all(len(window.of_ranks) == MOST_RANKS for window in windows.windows())
    assert sum(window.late_steps for window in windows.windows()) == 2200


def noisy(seed: int, steps: int) -> LateWindows:
    """Steps of 50 ms whose noise of 2 ms wanders: neighbours are alike."""
    random = np.random.default_rng(seed)
    noise_ms = random.normal(0, 2, steps + 4)
    alike_ms = np.convolve(noise_ms, np.ones(5) / 5, "valid")
    windows = LateWindows()
    none = np.zeros(steps, dtype=np.int64)
    windows.add(np.arange(steps), none, none > 0, none, 1e6 * (50 + alike_ms))
    return windows


@pytest.mark.parametrize("steps", [60, 1000])
def test_the_margin_covers_the_planted_mean_as_often_as_it_says(steps: int) -> None:
    """In 95 of 100 runs; neighbours that are alike cost some of them."""
    covered = 0
    for seed in range(300):
        windows = noisy(seed, steps)
        parts = [(each.left_ns, each.steps) for each in windows._windows]
        mean_s = sum(left_ns for left_ns, _ in parts) / sum(number for _, number in parts) / 1e9
        covered += abs(mean_s - 0.050) <= (windows.margin_s() or 0.0)

    assert covered >= 0.90 * 300


def test_few_windows_have_no_margin() -> None:
    """Ten batches of two are the least."""
    assert noisy(0, 19).margin_s() is None
    assert noisy(0, 20).margin_s() is not None
