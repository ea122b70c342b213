"""Ranks decide alike over the store of their process group, and none waits for ever."""

from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch.distributed import HashStore

from trainperf.core.launch_environment import TrialLaunch
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.recording.guard import Guard
from trainperf.recording.recorder import Recorder
from trainperf.trials.agreement import Agreement, RanksApartError
from trainperf.trials.probe import TrialsProbe
from trainperf.trials.start import trials_probe
from trainperf.trials.training import Training


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


def test_a_rank_that_leaves_is_not_waited_for() -> None:
    """Its fit has ended, or its trials were switched off; what it answered before still counts."""
    store = HashStore()
    leaving, staying = Agreement(store, 1, 2), Agreement(store, 0, 2)

    with ThreadPoolExecutor(2) as ranks:
        both = [ranks.submit(staying.largest, 1.0), ranks.submit(leaving.largest, 2.0)]
        assert [each.result() for each in both] == [2.0, 2.0]
    leaving.leave()

    with pytest.raises(RanksApartError, match="no answer from rank 1"):
        staying.largest(3.0)


def test_who_has_answered_and_left_has_answered() -> None:
    """As all ranks do at the end, one sooner than another, while a third is slow."""
    store = HashStore()
    agreements = [Agreement(store, rank, 3) for rank in range(3)]

    with ThreadPoolExecutor(2) as ranks:
        both = [ranks.submit(agreements[rank].largest, float(rank)) for rank in range(2)]
        store.wait(["trainperf/agreed/1/1/1"])
        agreements[1].leave()
        slow = agreements[2].largest(2.0)

    assert [each.result() for each in both] == [slow, slow] == [2.0, 2.0]


@pytest.mark.parametrize("ends", ["by a fault", "with the fit"])
def test_trials_that_end_early_on_a_rank_hold_up_no_other(
    monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """It goes on to train, and would wait for the others in its next collective."""
    store, guard = HashStore(), Guard()
    monkeypatch.setattr(Agreement, "of_job", lambda: Agreement(store, 1, 2))
    module = torch.nn.Linear(2, 2)
    training = Training(module, [], torch.device("cpu"))
    probe = trials_probe(training, None, guard, TrialLaunch())
    probe.attach(Recorder(monotonic_ns))
    other = Agreement(store, 0, 2)

    if ends == "by a fault":
        guard.fault(TrialsProbe.name, MemoryError())
    else:
        probe.detach()

    with pytest.raises(RanksApartError, match="no answer from rank 1"):
        other.largest(1.0)
