"""The law of the step: its worked examples, and what must hold whatever the step."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.accounts import loading, on_gpu, region, step
from support.causes.operators import (
    looping,
    product,
    tiny,
    tiny_micro_batches,
    twenty,
    under_autocast,
)

from trainperf.analysis.diagnosis.account import Claim, StepAccount, of_pause, of_regions, of_slots
from trainperf.analysis.diagnosis.detectors.launches import launch_bound
from trainperf.analysis.diagnosis.detectors.loader import data_wait
from trainperf.analysis.diagnosis.detectors.precision import autocast_casts, matmul_precision
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.diagnosis.findings import finding_of
from trainperf.analysis.diagnosis.law import (
    HELD_UP,
    about,
    at_most,
    gone_s,
    without_workers_s,
    worker_plan,
)
from trainperf.core.findings import COLD, REFILL_S, amdahl


CALLBACK = step(callbacks=24, forward=36, threads_s={"wandb": 0.006})
HANDS_OVER = Claim(owns_s={"callbacks": 0.024}, removes_s=0.024, threads=("wandb",))


def test_the_worked_example_of_its_page() -> None:
    """A callback of 24 of 60 ms, and a thread that computes 6 ms for it."""
    assert (COLD, REFILL_S, HELD_UP) == (3.0, 0.002, 1.5)
    assert at_most(CALLBACK, HANDS_OVER) == pytest.approx(60 / (60 - 24 - 2 - 1.5 * 6))
    assert about(CALLBACK, HANDS_OVER, 0.9) == pytest.approx(60 / (60 - 0.9 * (24 + 6)))


def test_threads_that_vanish_count() -> None:
    """They are gone, and the rest of the step no longer waits for them."""
    alone = Claim(owns_s={"callbacks": 0.024}, removes_s=0.024)

    assert gone_s(CALLBACK, HANDS_OVER) == pytest.approx(0.030)
    assert (at_most(CALLBACK, HANDS_OVER) or 0) > (at_most(CALLBACK, alone) or 0)
    assert (about(CALLBACK, HANDS_OVER, 1.0) or 0) > (about(CALLBACK, alone, 1.0) or 0)


@pytest.mark.parametrize(
    ("callbacks", "forward", "warm_ms"),
    [(2, 2, 2 * (1 - 1 / 3)), (50, 50, 2), (0.3, 1, 0.3)],
    ids=["a short step takes a third", "a long one refills", "little leaves little cold"],
)
def test_without_what_emptied_them_caches_are_warm(
    callbacks: float, forward: float, warm_ms: float
) -> None:
    """Two milliseconds at most, two thirds of the rest at most, and as much as it took."""
    account = step(callbacks=callbacks, forward=forward)

    bound = at_most(account, of_slots(account, "callbacks"))

    assert bound == pytest.approx((callbacks + forward) / (forward - warm_ms))


def test_what_interrupts_a_step_often_leaves_it_cold_as_often() -> None:
    """Four times 2 ms."""
    account, claim = step(forward=60), Claim(removes_s=0.020, interruptions=4)

    assert at_most(account, claim) == pytest.approx(60 / (60 - 20 - 4 * 2))


def test_what_the_kernel_does_in_the_rest_of_the_step_may_go_with_a_cause() -> None:
    """Of 60 ms a copy takes 20; the kernel works for 12 on two threads, a tenth of the step."""
    account = step(callbacks=20, forward=40, kernel_s=0.012, model_threads=2)

    most = at_most(account, of_slots(account, "callbacks"))

    assert most == pytest.approx(60 / (60 - 20 - 40 / 10 - 2))


def test_the_kernel_is_in_no_bound_of_a_pause_or_beside_a_device_and_never_more_than_half() -> None:
    """Its work for a fit's pauses is no step's; a driver's is for the device."""
    paused = step(forward=100, pauses_s={"validation": 20.0}, kernel_s=0.05)
    hosted = step(callbacks=20, forward=40, device=on_gpu(host_bound=1.0), kernel_s=0.03)
    busy = step(callbacks=20, forward=40, kernel_s=0.2)

    assert at_most(paused, of_pause(paused, "validation", 0)) == pytest.approx(40 / 20)
    assert at_most(hosted, of_slots(hosted, "callbacks")) == pytest.approx(60 / (40 - 2))
    assert at_most(busy, of_slots(busy, "callbacks")) == pytest.approx(60 / (40 - 20 - 2))


def test_a_device_that_is_ahead_does_not_mind_its_hosts_caches() -> None:
    """Amdahl's law alone."""
    account = step(callbacks=2, forward=2, device=on_gpu(host_bound=0.0))

    assert at_most(account, of_slots(account, "callbacks")) == amdahl(0.5)


def test_a_pause_is_a_part_of_the_fit() -> None:
    """Twenty seconds of steps and twenty of validation; a hundred times the caches were cold."""
    account = step(forward=100, pauses_s={"validation": 20.0})

    claim = of_pause(account, "validation", 100)

    assert at_most(account, claim) == pytest.approx(40 / (20 - 100 * REFILL_S))
    assert about(account, claim, 0.5) == pytest.approx(40 / 30)


def test_of_a_pause_that_saves_a_part_of_itself_all_may_go() -> None:
    """Ten seconds of compiling have saved four by shorter steps; with a cache ten are gone."""
    account = step(forward=100, pauses_s={"recompiling": 10.0})

    claim = Claim(pauses_s={"first_step": 6.0}, at_most_s=10.0)

    assert about(account, claim, 1.0) == pytest.approx(30 / 24)
    assert at_most(account, claim) == pytest.approx(30 / (20 - REFILL_S), rel=1e-3)


def test_with_workers_that_are_waited_for_a_faster_forward_gains_nothing() -> None:
    """Two workers bring a batch every 50 ms, whatever the training thread does meanwhile."""
    waited_for = step(data_wait=10, forward=40, loader=loading(2, 100, least=100))
    claim = Claim(owns_s={"forward": 0.020}, removes_s=0.020)

    assert about(waited_for, claim, 1.0) == pytest.approx(1.0)
    assert at_most(waited_for, claim) == pytest.approx(50 / (50 - 20 - 2))
    keeps_up = step(data_wait=0, forward=50, loader=loading(2, 60, least=60))
    assert about(keeps_up, claim, 1.0) == pytest.approx(50 / 30)
    maybe_idle = step(data_wait=10, forward=40, loader=loading(2, 100, least=0))
    assert about(maybe_idle, claim, 1.0) == pytest.approx(50 / 30)


def test_what_a_host_saves_behind_a_device_that_decides_only_a_capture_tells() -> None:
    """Of 20 ms in callbacks the device waited for 5."""
    alone, captured = (
        step(callbacks=20, forward=30, device=on_gpu(host_bound=0.0, **waits))
        for waits in ({}, {"host_s": 0.005})
    )
    claim = of_slots(alone, "callbacks")

    assert about(alone, claim, 1.0) is None
    assert at_most(alone, claim) == pytest.approx(50 / 30)
    assert about(captured, claim, 1.0) == pytest.approx(50 / 45)


def test_no_step_is_shorter_than_its_device_is_busy() -> None:
    """45 of 50 ms."""
    account = step(callbacks=20, forward=30, device=on_gpu(busy_s=0.045))

    assert about(account, of_slots(account, "callbacks"), 1.0) == pytest.approx(50 / 45)


def test_the_roofline_of_a_region_bounds_what_a_rewrite_of_it_gains() -> None:
    """A loop of 400 tiny operators takes 20 of 60 ms, and one kernel for all needs one."""
    training = looping(20)
    cause = launch_bound(*training)
    assert cause is not None

    finding = finding_of(cause, *training)

    rest_s, best_s = 0.040, 0.001
    assert finding.gain_upper_bound == pytest.approx(0.060 / (rest_s + best_s - REFILL_S))
    assert (finding.gain or 0) < 0.060 / (rest_s + best_s)


@pytest.mark.parametrize(("unexplained", "removes"), [(0.060, 0.090), (0.080, 0.100)])
def test_what_the_audited_step_does_not_explain_may_be_of_any_region(
    unexplained: float, removes: float
) -> None:
    """A phase of 100 ms took some 40 when it was audited; of all of it no more can be gone."""
    grows = region("sort", 30, ideal=0)
    account = step(grows, forward=100, backward=60, unexplained_s={"forward": unexplained})

    most = at_most(account, of_regions([grows]))

    assert most == pytest.approx(0.160 / (0.160 - removes - REFILL_S))


def test_a_change_whose_share_nobody_knows_promises_nothing_and_one_that_alters_more_no_bound() -> (
    None
):
    """Of a third of the step a compiled model may save all, and of the rest some."""
    training = tiny(20, 1500)
    cause = launch_bound(*training)
    assert cause is not None

    (compiled,) = finding_of(cause, *training).changes

    assert (compiled.id, compiled.about, compiled.at_most) == ("compile_step", None, None)


def test_of_eight_micro_batches_launches_an_eighth_is_left() -> None:
    """20 of 60 ms are launches; what larger products gain besides has no bound."""
    training = tiny_micro_batches()
    cause = launch_bound(*training)
    assert cause is not None

    first = finding_of(cause, *training).changes[0]

    assert first.id == "larger_micro_batches"
    assert first.about == pytest.approx(60 / (40 + 20 / 8))
    assert first.at_most is None


def test_without_autocast_its_conversions_are_gone_and_its_products_take_longer() -> None:
    """15 ms are gone, and 2.5 ms of arithmetic take four times as long."""
    training = under_autocast(2.5)
    cause = autocast_casts(*training)
    assert cause is not None

    (change,) = finding_of(cause, *training).changes

    assert change.id == "fp32_instead"
    assert change.about == pytest.approx(60 / (60 - 15 + 3 * 2.5))
    assert change.at_most is None


def test_products_in_a_slower_precision_are_its_own_whatever_another_one_saves() -> None:
    """Of 20 ms it removes 7.5 less the 12 µs of a call; no other cause has the rest."""
    account, facts = twenty(product())
    cause = matmul_precision(account, facts)
    assert cause is not None
    assert cause.claim is not None

    left = account.without(cause.claim)

    assert cause.claim.removes_s == pytest.approx(0.0075 - 12e-6)
    assert left.regions == ()
    assert left.spent("forward") == pytest.approx(0.0)


def test_what_has_to_stay_is_never_removed() -> None:
    """Nor does an ideal above what was timed make a step longer."""
    row = region("mm", 10, ideal=4)

    assert of_regions([row], stays_s=row.ideal_s).removes_s == pytest.approx(0.006)
    assert of_regions([row], stays_s=0.020).removes_s == 0.0


lengths = st.floats(0.1, 100.0)
parts = st.floats(0.0, 1.0)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    removed=parts, realised=parts, rest=lengths, spent=lengths, thread=st.floats(0, 5), bound=parts
)
def test_at_most_is_at_least_about_is_at_least_one(
    removed: float, realised: float, rest: float, spent: float, thread: float, bound: float
) -> None:
    """Whatever is removed, and whichever share of it a change realises."""
    device = None if bound < 0.3 else on_gpu(host_bound=bound, host_s=rest / 3e3)
    account = step(
        callbacks=spent, forward=rest, device=device, threads_s={"a": thread * rest / 50e3}
    )
    claim = Claim(
        owns_s={"callbacks": spent / 1e3}, removes_s=removed * spent / 1e3, threads=("a",)
    )

    most, likely = at_most(account, claim), about(account, claim, realised)

    assert most is not None
    assert likely is not None
    assert most + 1e-9 >= likely >= 1.0 - 1e-9
    more = about(account, claim, min(1.0, realised + 0.1))
    assert more is not None
    assert more >= likely - 1e-9


# -- loaders ------------------------------------


def plan(  # noqa: PLR0913 as many sides
    making: float,
    rest: float,
    *,
    cpus: float | None,
    threads: int = 1,
    workers: int = 0,
    asleep: float = 0.0,
    others: float = 0.0,
    device: bool = False,
    transport: float = 1.0,
) -> tuple[int, int | None, float, float] | None:
    """Workers, threads and both steps in milliseconds, of a step that is to get a plan."""
    wait = making if not workers else max(making / workers - rest, 0.0)
    account = step(
        data_wait=wait,
        forward=rest,
        loader=loading(workers, making, asleep=asleep, transport=transport),
        device=on_gpu() if device else None,
        cpus=cpus,
        model_threads=threads,
        others_cpus=others,
    )
    found = worker_plan(account)
    if found is None:
        return None
    return found.workers, found.threads, 1e3 * found.step_s, 1e3 * found.worst_s


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        # Of two CPUs one each: 8 ms may become 16, in the middle 12, as long as making takes.
        (plan(12, 8, cpus=2, threads=2), (1, 1, 12 + 1, 16 + 1)),
        # Already one thread: nothing gets slower.
        (plan(8, 10, cpus=2), (1, None, 10 + 1, 10 + 1)),
        # One of eight threads is given up: 30 ms may become 34.3.
        (plan(30, 30, cpus=8, threads=8), (1, 7, (30 + 30 * 8 / 7) / 2 + 1, 30 * 8 / 7 + 1)),
        # Sixty of making before ten: four workers would slow the model for less.
        (plan(60, 10, cpus=8, threads=8), (4, 4, 15 + 1, 20 + 1)),
        (plan(30, 10, cpus=8, threads=4), (3, None, 10 + 1, 10 + 1)),
        (plan(60, 25, cpus=8), (3, None, 25 + 1, 25 + 1)),
        (plan(100, 40, cpus=8, workers=2), (3, None, 40 + 1, 40 + 1)),
        # A worker that sleeps for 85 % needs a sixth of a CPU.
        (plan(40, 4, cpus=2, asleep=0.85), (6, None, 40 / 6 + 1, 40 / 6 + 1)),
        (plan(20, 2, cpus=3), (2, None, 10 + 1, 10 + 1)),
    ],
)
def test_the_number_of_workers_with_which_the_step_is_shortest(
    found: tuple[int, int | None, float, float] | None,
    expected: tuple[int, int | None, float, float],
) -> None:
    """Threads and workers are no more than CPUs; handing over is hidden by nothing."""
    assert found is not None
    assert found[:2] == expected[:2]
    assert found[2:] == pytest.approx(expected[2:])


@pytest.mark.parametrize(
    "found",
    [
        plan(3, 17, cpus=2, threads=2),
        plan(19, 1, cpus=1, threads=1),
        plan(40, 10, cpus=4, threads=4, workers=4),
        plan(30, 20, cpus=1),
        plan(0.3, 1, cpus=8),
        plan(30, 30, cpus=2, others=1.4),
        plan(90, 10, cpus=1, device=True),
    ],
    ids=[
        "a thread less costs more",
        "one CPU",
        "all CPUs have a worker",
        "no CPU",
        "less than a round trip",
        "other processes",
        "one CPU beside a device",
    ],
)
def test_where_no_number_of_workers_helps_none_is_planned(found: object) -> None:
    """Even in the worst case a step must get shorter."""
    assert found is None


@pytest.mark.parametrize("cpus", [1, 2, 3, 8])
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
@pytest.mark.parametrize("making", [5, 25, 400])
def test_workers_and_threads_are_never_more_than_the_cpus(
    cpus: int, threads: int, making: float
) -> None:
    """Nor does a step get longer, even with a model whose time is that of its threads."""
    found = plan(making, 20, cpus=cpus, threads=threads)

    if found is not None:
        workers, left, likely_ms, worst_ms = found
        assert workers + (left or threads) <= cpus
        assert likely_ms <= worst_ms < making + 20


def test_without_workers_the_training_thread_makes_its_batches() -> None:
    """2 ms to make one, 12 to wait for one."""
    assert without_workers_s(step(data_wait=12, forward=20, loader=loading(2, 2))) == (
        pytest.approx(0.022)
    )


def test_an_empty_step_has_no_gain() -> None:
    """Nothing would be left to divide by."""
    empty = StepAccount(step_s=0.0, loop_s={})

    assert at_most(empty, Claim()) is None
    assert about(empty, Claim(), 1.0) is None


def test_a_cheaper_sample_gives_back_the_cpus_that_workers_share_with_the_model() -> None:
    """Two workers compute 40 of 40 ms on the model's two CPUs: a half of its 20 ms is theirs."""
    account = step(
        data_wait=20,
        forward=20,
        loader=loading(2, 80, computes_s=0.040),
        cpus=2.0,
        model_threads=2,
    )

    cause = data_wait(account, Facts())

    assert cause is not None
    (cheaper,) = (use for use in cause.changes if use.change == "cheaper_sample")
    assert (cheaper.step_s, cheaper.least_s) == pytest.approx((0.010, 0.005))
