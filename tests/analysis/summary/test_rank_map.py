"""Map of the ranks: who differs from the typical rank is shown, of however many there are."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from scripts.simulation import records
from scripts.simulation.arrivals import Job, Plant
from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.job_block import FEW_RANKS
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.ranks import RankMap, rank_map


def mapped(path: Path, ranks: int, *plants: Plant, device: str = "cpu") -> RankMap:
    """The map of a simulated job."""
    records.write(Job(ranks=ranks, steps=60, device=device, plants=plants), path)
    return rank_map(summarize(Run.open(path)))


def figures(of: RankMap, places: Sequence[int]) -> dict[str, float]:
    """Milliseconds by column of a rank, or of that of several that has most."""
    return {
        f"{column.kind} {column.name}": round(
            1e3 * float(column.values_s[max(places, key=column.excess.__getitem__)]), 1
        )
        for column in of.columns
    }


@pytest.mark.parametrize("ranks", [8, 96])
def test_a_slow_rank_is_shown_with_what_it_does_longer(tmp_path: Path, ranks: int) -> None:
    """20 ms of data wait: late by as much, and nobody waits less."""
    of = mapped(tmp_path, ranks, Plant(ranks=(5,), piece="data_wait", delay_ms=20))
    own = figures(of, [5])

    assert 5 in of.shown
    assert own["phase data_wait"] == pytest.approx(22, abs=1)
    assert own["late backward"] == pytest.approx(20, abs=1)
    assert own["wait backward"] < 4
    # What others wait for it is no work of theirs.
    assert own["phase backward"] == pytest.approx(26, abs=1)


def test_each_of_a_few_ranks_has_a_row(tmp_path: Path) -> None:
    """In their order."""
    assert list(mapped(tmp_path, FEW_RANKS).shown) == list(range(FEW_RANKS))


def test_of_many_ranks_those_that_differ_are_shown(tmp_path: Path) -> None:
    """One of 300."""
    of = mapped(tmp_path, 300, Plant(ranks=(137,), piece="optimizer", delay_ms=20))

    assert figures(of, [137])["phase optimizer"] == pytest.approx(23, abs=1)
    assert list(of.shown) == [137]


def test_a_single_rank_has_no_map(tmp_path: Path) -> None:
    """There is nobody to compare it with."""
    records.write(Job(ranks=1, steps=40), tmp_path)

    assert rank_map(summarize(Run.open(tmp_path))) is None
