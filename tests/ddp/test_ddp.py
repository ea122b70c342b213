"""Two ranks over gloo: who waits for whom, and where."""

from statistics import median

import pytest
from support.fits import MS, Ran
from support.ranks import Ranks

from trainperf.core.artifacts import read_document
from trainperf.core.artifacts.lines import SENDS_BUFFERS, SampledLines
from trainperf.core.artifacts.trials import Trials
from trainperf.core.phases import Phase, Tag


pytestmark = [pytest.mark.ddp, pytest.mark.slow]

ALL = (
    "healthy",
    "before_backward",
    "batch_end",
    "unused",
    "static_graph",
    "comm_hook",
    "slow_unsynchronized",
    "slow_synchronized",
    "failing",
    "tokens",
)


def tails_ms(ran: Ran) -> list[float]:
    """Every tail that was measured, in milliseconds."""
    return [float(tail) / MS for tail in ran.fact("tail_ns") if tail is not None]


def phase_ms(ran: Ran, phase: Phase) -> float:
    """Median over the steps that another follows; after the last nobody is waited for."""
    return median(ran.phase_ns(phase)[:-1]) / MS


@pytest.mark.parametrize("fit", ALL)
def test_both_ranks_record_the_same_steps_in_one_directory(ranks: Ranks, fit: str) -> None:
    """Rank 0 chooses it; no part of ours fails, and no hook stays on a parameter."""
    both = [ranks.run(fit, rank) for rank in (0, 1)]
    assert ranks.directory(fit, 0) == ranks.directory(fit, 1)
    assert both[0].micro_batches() == both[1].micro_batches()
    for rank, ran in enumerate(both):
        assert (ran.info.rank, ran.info.world_size) == (rank, 2)
        assert ran.totals.faults == {}
        assert sum(s.wall_ns for s in ran.steps) + sum(g.duration_ns for g in ran.gaps) == (
            ran.end.fit_ns
        )
        assert ranks.planted(fit, rank)["hooks"] == 0


@pytest.mark.parametrize("fit", ALL)
@pytest.mark.parametrize("rank", [0, 1])
def test_every_step_has_a_tail_from_the_first_on(ranks: Ranks, fit: str, rank: int) -> None:
    """Also where a parameter is no longer used; nothing is learnt, and no step is tagged for it."""
    ran = ranks.run(fit, rank)
    tails = ran.fact("tail_ns")
    assert all(isinstance(tail, int) and tail >= 0 for tail in tails)
    assert ran.tagged(Tag.AUDITED) == []


@pytest.mark.parametrize(("fit", "sent"), [("buffers", 32 << 20), ("healthy", 0)])
def test_buffers_that_are_sent_before_every_forward_are_told_and_seen(
    ranks: Ranks, fit: str, sent: int
) -> None:
    """Their size, and samples of forward that stand in DDP's own code."""
    ran = ranks.run(fit, 0)
    lines = read_document(SampledLines, ranks.directory(fit, 0))

    assert ran.info.config["buffer_bytes"] == sent
    work = {stack.host_work for stack in lines.stacks if stack.slot == "forward"}
    assert (SENDS_BUFFERS in work) is bool(sent)


@pytest.mark.parametrize("fit", ["before_backward", "static_graph", "comm_hook", "unused"])
def test_a_rank_that_is_slow_before_backward_makes_the_other_wait_in_its_tail(
    ranks: Ranks, fit: str
) -> None:
    """40 ms on rank 1 are 40 ms in rank 0's tail, not in its loop; rank 1 itself waits for nobody.

    Also with a static graph, with the user's own communication hook, which is left alone, and where
    the parameter whose gradient was last takes no part after four steps.
    """
    waiting, slow = ranks.run(fit, 0), ranks.run(fit, 1)
    tail_ms = median(tails_ms(waiting))
    assert tail_ms > 30
    assert median(tails_ms(slow)) < tail_ms / 2
    assert phase_ms(waiting, Phase.LOOP) < tail_ms / 2
    slept_ns = ranks.planted(fit, 1)["slept_ns"]
    forward = slow.phase_ns(Phase.FORWARD)
    assert all(spent >= slept for spent, slept in zip(forward, slept_ns, strict=True))


def test_a_rank_that_is_slow_at_batch_end_makes_the_other_wait_in_its_loop(ranks: Ranks) -> None:
    """Lightning lets all ranks meet before the fetch: there the time goes, never into the tail."""
    waiting, slow = ranks.run("batch_end", 0), ranks.run("batch_end", 1)
    loop_ms = phase_ms(waiting, Phase.LOOP)
    assert loop_ms > 30
    assert phase_ms(slow, Phase.LOOP) < loop_ms / 2
    assert phase_ms(slow, Phase.CALLBACKS) >= 40
    assert median(tails_ms(waiting)) < loop_ms / 2
    assert median(tails_ms(slow)) < loop_ms / 2
    # Nobody is met after the last step.
    assert waiting.phase_ns(Phase.LOOP)[-1] < loop_ms / 2 * MS


def test_healthy_ranks_wait_for_nobody(ranks: Ranks) -> None:
    """Otherwise the two tests above would prove nothing."""
    planted_ms = median(tails_ms(ranks.run("before_backward", 0)))
    for rank in (0, 1):
        ran = ranks.run("healthy", rank)
        assert median(tails_ms(ran)) < planted_ms / 2
        assert phase_ms(ran, Phase.LOOP) < planted_ms / 2


def test_a_micro_batch_that_does_not_synchronise_has_no_tail(ranks: Ranks) -> None:
    """What its backward does after its gradients is backward, and no wait for anybody."""
    quiet, slow = ranks.run("slow_unsynchronized", 0), ranks.run("slow_synchronized", 0)
    assert quiet.micro_batches() == slow.micro_batches() == [2] * 16
    assert median(tails_ms(slow)) >= 40
    assert median(tails_ms(quiet)) < median(tails_ms(slow)) / 2
    assert phase_ms(quiet, Phase.BACKWARD) >= 40


def test_an_exception_on_all_ranks_closes_both_files(ranks: Ranks) -> None:
    """With the five steps before it; a later fit of the same processes is as any other."""
    for rank in (0, 1):
        ran = ranks.run("failing", rank)
        assert ran.micro_batches() == [1] * 5
        assert ran.end.reason == "PlantedError"


def test_tokens_are_those_of_the_rank(ranks: Ranks) -> None:
    """Six of six on one rank, four of six on the other; nobody multiplies rank 0's."""
    first, second = ranks.run("tokens", 0), ranks.run("tokens", 1)
    assert first.fact("tokens_effective") == [6] * 16
    assert second.fact("tokens_effective") == [4] * 16
    assert first.fact("tokens_padded") == second.fact("tokens_padded") == [6] * 16


def test_a_directory_that_exists_is_not_used_by_any_rank(ranks: Ranks) -> None:
    """The one that was there before is still empty."""
    assert ranks.directory("tokens", 1).name == "trainperf-1"
    assert list((ranks.root / "tokens" / "trainperf").iterdir()) == []


def test_ranks_try_together_and_end_together(ranks: Ranks) -> None:
    """The same steps under the same changes; a change that fails on one is given up by both."""
    first, second = ranks.run("tried", 0), ranks.run("tried", 1)
    assert first.tagged(Tag.TRIAL) == second.tagged(Tag.TRIAL) != []
    assert len(first.steps) == len(second.steps) > 16
    document = read_document(Trials, ranks.directory("tried", 0))
    results = {trial.id: trial for trial in document.trials}
    assert results["idle"].pairs >= 8
    assert results["fails"].verdict == "failed"
