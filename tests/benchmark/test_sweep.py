"""Knees of planted points, and sweeps of steps whose memory ends where it was planted."""

import gc
import weakref
from unittest.mock import Mock

import msgspec
import pytest
import torch

from trainperf.benchmark import PeakMemory, StepBenchmark, Sweep, SweepPoint, sweep
from trainperf.core.errors import ConfigError


def point(batch_size: int, median_s: float | None, length: int = 1) -> SweepPoint:
    """A measured point, or without a median one that does not fit."""
    step = median_s and StepBenchmark(
        name="step",
        warmup_s=(0.2,),
        steady_s=(median_s,) * 10,
        median_s=median_s,
        iqr_s=median_s / 50,
        calls=1,
        memory=PeakMemory(source="CUDA allocator", peak_bytes=batch_size << 20),
    )
    refused = "" if median_s else "out of memory"
    return SweepPoint(batch_size=batch_size, length=length, refused=refused, step=step or None)


def swept(*points: SweepPoint) -> Sweep:
    """A sweep of these."""
    longer = any(each.length > 1 for each in points)
    return Sweep(unit="tokens" if longer else "samples", points=points)


def test_the_knee_is_the_smallest_batch_within_five_percent_of_the_best() -> None:
    """100, 190, 200, 198 samples/s: 190 is exactly within 5 % of 200."""
    found = swept(point(1, 0.01), point(2, 2 / 190), point(4, 0.02), point(8, 8 / 198))
    knee = found.knee()

    assert (knee.batch_size, knee.per_s) == (2, pytest.approx(190))
    assert found.fitting()[-1].batch_size == 8


def test_a_throughput_that_still_rises_has_no_knee_yet() -> None:
    """Each batch takes as long as the one before: larger ones were not tried."""
    found = swept(point(1, 0.01), point(2, 0.01), point(4, 0.01))

    assert str(found).startswith("Batch 4, 400 samples/s, throughput still rising: try larger ")


def test_each_length_has_a_knee_of_its_own() -> None:
    """The longest one's is the default."""
    points = (point(1, 0.01, 64), point(2, 0.02, 64), point(1, 0.02, 128), point(2, 0.03, 128))

    found = swept(*points)

    assert found.lengths == (64, 128)
    assert [found.knee(length).batch_size for length in found.lengths] == [1, 2]  # type: ignore[union-attr]
    assert found.knee() == found.knee(128)


def test_a_knee_on_a_noisy_time_says_so() -> None:
    """Another sweep may differ."""
    noisy = point(2, 0.005)
    step = msgspec.structs.replace(noisy.step, iqr_s=0.001)
    found = swept(point(1, 0.01), msgspec.structs.replace(noisy, step=step), point(4, 0.01))

    assert "(noisy: measure again)" in str(found).splitlines()[0]


def test_a_sweep_reads_as_an_answer_and_a_table() -> None:
    """Every number with its unit; where memory ended stands in its row."""
    found = swept(point(8, 0.1, 128), point(16, 0.195, 128), point(24, None, 128))

    answer, table, notes = str(found).split("\n\n")

    assert answer.replace("\n", " ") == (
        "Length 128: batch 8, 10,240 tokens/s, the smallest within 5 % of the best throughput; "
        "16 fits, 24 does not."
    )
    assert table.splitlines() == [
        "length  batch  median      IQR    cold  tokens/s  peak memory",
        "   128      8  100 ms  2.00 ms  200 ms    10,240     8.00 MiB  ← knee",
        "   128     16  195 ms  3.90 ms  200 ms    10,503     16.0 MiB",
        f"   128     24{'–':>8}{'–':>9}{'–':>8}{'–':>10}{'–':>13}  does not fit: out of memory",
    ]
    assert notes == "Peak memory: CUDA allocator."


class Hungry:
    """A step that holds a graph of its batch and fails on batches above *most*."""

    def __init__(self, most: int, error: type[RuntimeError] = torch.OutOfMemoryError) -> None:
        self.most = most
        self.error = error
        self.seen: list[tuple[int, ...]] = []
        self.kept: list[weakref.ref[torch.Tensor]] = []

    def __call__(self, batch: torch.Tensor) -> torch.Tensor:
        """Record the shape, then fail or compute."""
        self.seen.append(tuple(batch.shape))
        result = batch * 2
        self.kept.append(weakref.ref(result))
        if len(batch) > self.most:
            raise self.error("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return result.sum()


def test_the_largest_that_fits_is_looked_for_where_memory_ended() -> None:
    """Memory ends above 11: between 4 and 16 the search tries 10, 13, 11 and 12."""
    step = Hungry(11)

    found = sweep(step, torch.ones, [16, 1, 4, 32], repeat=6)

    tried = {each.batch_size: each.refused for each in found.points}
    out = "out of memory, 2.00 GiB requested"
    assert tried == {1: "", 4: "", 10: "", 11: "", 12: out, 13: out, 16: out}
    assert found.fitting()[-1].batch_size == 11
    assert found.unit == "samples"


def test_each_point_is_the_benchmark_of_one_shape() -> None:
    """Three calls to warm up, six timed ones, and those in which memory is looked at."""
    step = Hungry(100)

    found = sweep(step, torch.ones, [2, 4], [8, 16], repeat=6)

    shapes = [(2, 8), (4, 8), (2, 16), (4, 16)]
    assert [(each.batch_size, each.length) for each in found.points] == shapes
    assert list(dict.fromkeys(step.seen)) == shapes
    assert all(step.seen.count(shape) > 9 for shape in shapes)
    assert all(each.median_s is not None for each in found.points)
    assert found.unit == "tokens"


def test_what_a_batch_that_did_not_fit_took_is_given_back() -> None:
    """Nothing of the failed call is alive at the next point: not even through its traceback."""
    step = Hungry(4)
    alive: list[int] = []

    def make(size: int, length: int) -> torch.Tensor:
        gc.collect()
        alive.append(sum(kept() is not None for kept in step.kept))
        return torch.ones(size, length)

    sweep(step, make, [4, 8], repeat=6)

    assert len(alive) == 4
    assert alive == [0] * len(alive)


def test_an_error_that_is_not_about_memory_is_not_swallowed() -> None:
    """A wrong shape is the user's to see."""
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        sweep(
            Mock(side_effect=RuntimeError("mat1 and mat2 shapes cannot be multiplied")),
            lambda size, length: torch.ones(size),
            [1],
        )


@pytest.mark.skipif(torch.cuda.is_available(), reason="the resident set is a CPU's")
def test_a_limit_on_a_cpu_is_one_of_the_resident_set() -> None:
    """A batch of one takes almost nothing, one of two 256 MiB: the limit is 64 MiB above now."""
    import psutil

    limit = psutil.Process().memory_info().rss + (64 << 20)
    held: list[torch.Tensor] = []

    def step(batch: int) -> None:
        held.append(torch.ones((batch - 1) << 26))
        held.clear()

    found = sweep(step, lambda size, length: size, [1, 2], repeat=6, limit_bytes=limit)

    assert [bool(each.refused) for each in found.points] == [False, True]
    assert "limit" in found.points[1].refused
    assert found.points[1].median_s is None


@pytest.mark.parametrize(
    ("sizes", "lengths", "said"),
    [([], [1], "batch_sizes="), ([0], [1], "batch_sizes="), ([1], [-1], "lengths=")],
)
def test_nonsense_is_refused(sizes: list[int], lengths: list[int], said: str) -> None:
    """Before anything is measured, with the value."""
    with pytest.raises(ConfigError, match=said):
        sweep(Hungry(1), lambda size, length: torch.ones(1), sizes, lengths)
