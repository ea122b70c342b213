"""Knees of planted points, and sweeps of steps whose memory ends where it was planted."""

import gc
import weakref
from pathlib import Path

import msgspec
import pytest
import torch

from trainperf.benchmark import PeakMemory, Sweep, SweepPoint, sweep
from trainperf.core.errors import ConfigError


def point(batch_size: int, median_s: float | None, length: int = 1) -> SweepPoint:
    """A measured point, or without a median one that does not fit."""
    return SweepPoint(
        batch_size=batch_size,
        length=length,
        refused="" if median_s else "out of memory",
        cold_s=0.2 if median_s else None,
        median_s=median_s,
        iqr_s=median_s and median_s / 50,
        memory=PeakMemory(source="CUDA allocator", peak_bytes=batch_size << 20),
        recompiles=0,
    )


def swept(*points: SweepPoint) -> Sweep:
    """A sweep of these."""
    longer = any(each.length > 1 for each in points)
    return Sweep(unit="tokens" if longer else "samples", limit_bytes=None, points=points)


def test_the_knee_is_the_smallest_batch_within_five_percent_of_the_best() -> None:
    """100, 190, 200, 198 samples/s: 190 is exactly within 5 % of 200."""
    found = swept(point(1, 0.01), point(2, 2 / 190), point(4, 0.02), point(8, 8 / 198)).knee()

    assert found is not None
    assert (found.batch_size, found.best, found.largest, found.refused) == (2, 4, 8, None)
    assert (found.per_s, found.best_per_s) == (pytest.approx(190), 200)
    assert not found.rising


def test_a_throughput_that_still_rises_has_no_knee_yet() -> None:
    """Each batch takes as long as the one before: larger ones were not tried."""
    found = swept(point(1, 0.01), point(2, 0.01), point(4, 0.01))

    assert found.knee() is not None
    assert found.knee().rising  # type: ignore[union-attr]
    assert str(found).startswith("Batch 4, 400 samples/s, throughput still rising: try larger ")


def test_each_length_has_a_knee_of_its_own() -> None:
    """The longest one's is the default."""
    points = (point(1, 0.01, 64), point(2, 0.02, 64), point(1, 0.02, 128), point(2, 0.03, 128))

    found = swept(*points)

    assert found.lengths == (64, 128)
    assert [found.knee(length).batch_size for length in found.lengths] == [1, 2]  # type: ignore[union-attr]
    assert found.knee() == found.knee(128)


def test_a_knee_on_a_noisy_time_says_so() -> None:
    """The first line warns, and so do the notes."""
    noisy = msgspec.structs.replace(point(2, 0.005), noisy=True)
    found = swept(point(1, 0.01), noisy, point(4, 0.01))

    assert found.knee().noisy  # type: ignore[union-attr]
    assert "(noisy: measure again)" in str(found).splitlines()[0]
    assert "Noisy: IQR above 10 % of the median at 1 point of 3" in str(found)


def test_where_nothing_fits_there_is_no_knee() -> None:
    """`None`, and the text says it."""
    found = swept(point(4, None))

    assert found.knee() is None
    assert str(found).startswith("No batch size fits.\nLargest batch that fits: none.\n")


def test_a_sweep_reads_as_an_answer_and_a_table() -> None:
    """Every number with its unit; where memory ended stands in its row."""
    found = swept(point(8, 0.1, 128), point(16, 0.195, 128), point(24, None, 128))

    assert str(found).splitlines() == [
        "Length 128: batch 8, 10,240 tokens/s, within 5 % of the best (10,503 at batch 16).",
        "Largest batch that fits: 16 at length 128 (24 does not).",
        "",
        "length  batch  median   IQR    cold  tokens/s  peak memory",
        "   128      8  100 ms  2 ms  200 ms    10,240     8.00 MiB  ← knee",
        "   128     16  195 ms  4 ms  200 ms    10,503     16.0 MiB",
        "   128     24       –     –       –         –     24.0 MiB  does not fit: out of memory",
        "",
        "The knee is the smallest batch within 5 % of the best tokens/s of its length.",
        "Peak memory: CUDA allocator.",
    ]


def test_results_are_plain_data() -> None:
    """They survive JSON."""
    found = swept(point(8, 0.1, 128), point(24, None, 128))

    assert msgspec.json.decode(msgspec.json.encode(found), type=Sweep) == found


def test_the_plot_is_a_page_that_loads_nothing_and_says_the_answer_first(tmp_path: Path) -> None:
    """Two figures, the knee as the large dot, and where memory ended."""
    found = swept(point(8, 0.1, 128), point(16, 0.195, 128), point(24, None, 128))

    found.save_plot(tmp_path / "sweep.html")

    page = (tmp_path / "sweep.html").read_text(encoding="utf-8")
    assert "<h1>Length 128: batch 8, 10,240 tokens/s, within 5 % of the best" in page
    assert page.count("<svg") == 2
    assert page.count('stroke-width="11.0"') == 2
    assert "24 does not fit" in page
    assert "http" not in page.replace("http-equiv", "")


def test_large_batch_sizes_stand_on_the_axis_as_they_are_written(tmp_path: Path) -> None:
    """1,024 and 4,096: nobody calls them 1.02e+03."""
    found = swept(*(point(size, size / 1000) for size in (64, 256, 1024, 4096)))

    found.save_plot(tmp_path / "sweep.html")

    page = (tmp_path / "sweep.html").read_text(encoding="utf-8")
    ticks = page.split('<div class="across">', maxsplit=1)[1]
    assert all(f">{size}</span>" in ticks for size in ("64", "256", "1,024", "4,096"))
    assert "e+" not in page


def test_a_plot_of_another_kind_is_refused(tmp_path: Path) -> None:
    """With the name and the remedy; nothing is written."""
    with pytest.raises(ConfigError, match=r"sweep\.png: a plot is an HTML page"):
        swept(point(8, 0.1)).save_plot(tmp_path / "sweep.png")

    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_graphs_that_are_built_for_a_shape_stand_in_its_row() -> None:
    """A function compiled for fixed shapes is compiled anew for every batch size, once."""
    torch._dynamo.reset()
    step = torch.compile(lambda batch: (batch * 2).sum(), backend="eager", dynamic=False)

    found = sweep(step, torch.ones, [2, 4, 8], repeat=6)

    assert [each.recompiles for each in found.points] == [1, 1, 1]
    assert "torch.compile built 3 graphs for 3 of 3 shapes" in str(found).replace("\n", " ")


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
    knee = found.knee()
    assert knee is not None
    assert (knee.largest, knee.refused) == (11, 12)
    assert found.unit == "samples"


def test_each_point_is_the_benchmark_of_one_shape() -> None:
    """Three calls to warm up, six timed ones, and those in which memory is looked at."""
    step = Hungry(100)

    found = sweep(step, torch.ones, [2, 4], [8, 16], repeat=6)

    shapes = [(2, 8), (4, 8), (2, 16), (4, 16)]
    assert [(each.batch_size, each.length) for each in found.points] == shapes
    assert list(dict.fromkeys(step.seen)) == shapes
    assert all(step.seen.count(shape) > 9 for shape in shapes)
    assert all(each.median_s is not None and each.cold_s is not None for each in found.points)
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

    def broken(batch: torch.Tensor) -> None:
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        sweep(broken, lambda size, length: torch.ones(size), [1])


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
    ("sizes", "lengths", "limit", "said"),
    [
        ([], [1], None, "batch_sizes="),
        ([0], [1], None, "batch_sizes="),
        ([1], [-1], None, "lengths="),
        ([1], [1], 0, "limit_bytes=0"),
    ],
)
def test_nonsense_is_refused(
    sizes: list[int], lengths: list[int], limit: int | None, said: str
) -> None:
    """Before anything is measured, with the value."""
    with pytest.raises(ConfigError, match=said):
        sweep(Hungry(1), lambda size, length: torch.ones(1), sizes, lengths, limit_bytes=limit)
