"""Ranks decide alike over the store of their process group, and none waits for ever."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from torch.distributed import HashStore

from trainperf.trials.agreement import Agreement, RanksApartError


def test_every_rank_gets_the_largest_value_again_and_again() -> None:
    """Whoever asks first; the next fit of the same processes does not read the one before."""
    store = HashStore()
    answers = []
    for fit in range(2):

        def ask(rank: int, fit: int = fit) -> list[float]:
            agreement = Agreement(store, rank, 3)
            return [agreement.largest(10.0 * fit + step * rank) for step in range(4)]

        with ThreadPoolExecutor(3) as ranks:
            answers.append(list(ranks.map(ask, range(3))))

    assert answers == [[[0, 2, 4, 6]] * 3, [[10, 12, 14, 16]] * 3]


def test_a_rank_that_is_silent_is_named_and_not_waited_for_longer() -> None:
    """Its trials were switched off: training goes on without them on all ranks."""
    store = HashStore()
    Agreement(store, 1, 3)
    agreement = Agreement(store, 0, 3, patience_ns=1_000_000)
    store.set("trainperf/agreed/1/1/2", "7.0")

    with pytest.raises(RanksApartError, match="no answer from rank 1"):
        agreement.largest(1.0)
