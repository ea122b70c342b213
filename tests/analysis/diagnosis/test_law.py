"""The law of the step: its worked examples, and what must hold whatever the step."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.accounts import Seen, loading, on_gpu, region, step
from support.causes.operators import (
    looping,
    product,
    tiny,
    tiny_micro_batches,
    twenty,
    under_autocast,
)

from trainperf.analysis.diagnosis.account import Claim, StepAccount, of_regions, of_slots
from trainperf.analysis.diagnosis.cause import Detector
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
    worker_plan,
)
from trainperf.core.findings import COLD, REFILL_S


CALLBACK = step(callbacks=24, forward=36, threads_s={"wandb": 0.006})
HANDS_OVER = Claim(owns_s={"callbacks": 0.024}, removes_s=0.024, threads=("wandb",))


ALONE = Claim(owns_s={"callbacks": 0.024}, removes_s=0.024)
FORWARD = Claim(owns_s={"forward": 0.020}, removes_s=0.020)
PAUSED = step(forward=100, pauses_s={"validation": 20.0}, kernel_s=0.05)
COMPILING = step(forward=100, pauses_s={"recompiling": 10.0})
GROWS = region("sort", 30, ideal=0)


def paused(times: int) -> Claim:
    """All of the validation of `PAUSED`, which stops the fit so many times."""
    return Claim(pauses_s=PAUSED.pauses_s, interruptions=times)


def hooks(callbacks: float, forward: float, **known: object) -> tuple[StepAccount, Claim]:
    """A step of so many milliseconds in callbacks, all of which are removed."""
    account = step(callbacks=callbacks, forward=forward, **known)
    return account, of_slots(account, "callbacks")


def fed(making: float, least: float, wait: float = 10) -> tuple[StepAccount, Claim]:
    """Twenty milliseconds less of forward in steps of 50, fed by two workers."""
    loader = loading(2, making, computes_s=least / 1e3)
    return step(data_wait=wait, forward=50 - wait, loader=loader), FORWARD


def unexplained(ms: float) -> tuple[StepAccount, Claim]:
    """A forward of 100 ms took less when it was audited: of so much nobody knows whose it is."""
    account = step(GROWS, forward=100, backward=60, unexplained_s={"forward": ms / 1e3})
    return account, of_regions([GROWS])


AHEAD = {"device": on_gpu(host_bound=0.0)}
CAPTURED = {"device": on_gpu(host_bound=0.0, host_s=0.005)}

LAW: dict[str, tuple[StepAccount, Claim, float | None, float | None]] = {
    "of an empty step": (StepAccount(step_s=0.0, loop_s={}), Claim(), None, None),
    # The worked example: a callback of 24 of 60 ms, and a thread that computes 6 ms for it.
    "threads that vanish": (CALLBACK, HANDS_OVER, 60 / (60 - 24 - 2 - 1.5 * 6), 60 / (60 - 30)),
    "no thread": (CALLBACK, ALONE, 60 / (60 - 24 - 2), 60 / (60 - 24)),
    # Caches are warm: 2 ms at most, two thirds of the rest at most, and as much as it took.
    "a short step takes a third": (*hooks(2, 2), 4 / (2 / 3), 2.0),
    "a long one refills": (*hooks(50, 50), 100 / 48, 2.0),
    "little leaves little cold": (*hooks(0.3, 1), 1.3 / 0.7, 1.3),
    "what interrupts a step often leaves it cold as often": (
        step(forward=60),
        Claim(removes_s=0.020, interruptions=4),
        60 / (60 - 20 - 4 * 2),
        60 / 40,
    ),
    # It works for 12 of 60 ms on two threads, a tenth of the step; never for more than half.
    "what the kernel does in the rest may go with a cause": (
        *hooks(20, 40, kernel_s=0.012, model_threads=2),
        60 / (60 - 20 - 40 / 10 - 2),
        60 / 40,
    ),
    "the kernel works for all of it": (
        *hooks(20, 40, kernel_s=0.2),
        60 / (60 - 20 - 20 - 2),
        60 / 40,
    ),
    # Its work for a fit's pauses is no step's; a driver's is for the device.
    "no kernel in a pause": (PAUSED, paused(0), 40 / 20, 40 / 20),
    "no kernel beside a device": (
        *hooks(20, 40, device=on_gpu(host_bound=1.0), kernel_s=0.03),
        60 / (40 - 2),
        60 / 40,
    ),
    # Twenty seconds of steps and twenty of validation; a hundred times the caches were cold.
    "a pause is a part of the fit": (
        PAUSED,
        paused(100),
        40 / (20 - 100 * REFILL_S),
        40 / 20,
    ),
    # Ten seconds of compiling have saved four by shorter steps; with a cache ten are gone.
    "of a pause that saves a part of itself all may go": (
        COMPILING,
        Claim(pauses_s={"first_step": 6.0}, at_most_s=10.0),
        30 / (20 - REFILL_S),
        30 / 24,
    ),
    # Two workers bring a batch every 50 ms, whatever the training thread does meanwhile.
    "workers that are waited for": (*fed(100, 100), 50 / (50 - 20 - 2), 1.0),
    "workers that keep up": (*fed(60, 60, wait=0), 50 / (50 - 20 - 2), 50 / 30),
    "workers that may be idle": (*fed(100, 0), 50 / (50 - 20 - 2), 50 / 30),
    # What a host saves behind a device that decides only a capture tells: it waited for 5 ms.
    "behind a device that is ahead": (*hooks(20, 30, **AHEAD), 50 / 30, None),
    "behind one that was captured": (*hooks(20, 30, **CAPTURED), 50 / 30, 50 / 45),
    "no step is shorter than its device is busy": (
        *hooks(20, 30, device=on_gpu(busy_s=0.045)),
        50 / (30 - 2),
        50 / 45,
    ),
    # What the audit does not explain may be of any region; of all of a phase no more can be gone.
    "of 60 ms nobody knows whose": (*unexplained(60), 160 / (160 - 90 - 2), 160 / 130),
    "of more than is left": (*unexplained(80), 160 / (160 - 100 - 2), 160 / 130),
}
"""A step, what a cause removes of it, and by how much it gets faster at most and probably."""


@pytest.mark.parametrize(("account", "claim", "most", "likely"), LAW.values(), ids=LAW)
def test_what_a_step_gains_without_a_cause(
    account: StepAccount, claim: Claim, most: float | None, likely: float | None
) -> None:
    """At most, and with a change that realises all of it."""
    assert at_most(account, claim) == (most and pytest.approx(most, rel=1e-3))
    assert about(account, claim, 1.0) == (likely and pytest.approx(likely))


def test_a_change_realises_a_part_of_what_is_removed() -> None:
    """Nine tenths of the seconds of a callback and of its thread; half of a pause."""
    assert (COLD, REFILL_S, HELD_UP) == (3.0, 0.002, 1.5)
    assert gone_s(CALLBACK, HANDS_OVER) == pytest.approx(0.030)
    assert about(CALLBACK, HANDS_OVER, 0.9) == pytest.approx(60 / (60 - 0.9 * (24 + 6)))
    assert about(PAUSED, paused(100), 0.5) == pytest.approx(40 / 30)


def test_the_roofline_of_a_region_bounds_what_a_rewrite_of_it_gains() -> None:
    """A loop of 400 tiny operators takes 20 of 60 ms, and one kernel for all needs one."""
    training = looping(20)
    cause = launch_bound(*training)

    finding = finding_of(cause, *training)

    rest_s, best_s = 0.040, 0.001
    assert finding.gain_upper_bound == pytest.approx(0.060 / (rest_s + best_s - REFILL_S))
    assert (finding.gain or 0) < 0.060 / (rest_s + best_s)


@pytest.mark.parametrize(
    ("detect", "training", "change", "likely"),
    [
        # Of a third of the step a compiled model may save all, and of the rest some.
        (launch_bound, tiny(20, 1500), "compile_step", None),
        # 20 of 60 ms are launches, of eight micro-batches; larger products gain besides.
        (launch_bound, tiny_micro_batches(), "larger_micro_batches", 60 / (40 + 20 / 8)),
        # 15 ms are gone, and 2.5 ms of arithmetic take four times as long.
        (autocast_casts, under_autocast(2.5), "fp32_instead", 60 / (60 - 15 + 3 * 2.5)),
    ],
)
def test_a_change_that_alters_more_than_its_cause_claims_has_no_bound(
    detect: Detector, training: Seen, change: str, likely: float | None
) -> None:
    """Nor a probable gain, where nobody knows its share."""
    first = finding_of(detect(*training), *training).changes[0]

    assert (first.id, first.at_most) == (change, None)
    assert first.about == (likely and pytest.approx(likely))


def test_products_in_a_slower_precision_are_its_own_whatever_another_one_saves() -> None:
    """Of 20 ms it removes 7.5 less the 12 µs of a call; no other cause has the rest."""
    account, facts = twenty(product())
    cause = matmul_precision(account, facts)

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

    assert most + 1e-9 >= likely >= 1.0 - 1e-9
    more = about(account, claim, min(1.0, realised + 0.1))
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
    cause = data_wait(step(data_wait=12, forward=20, loader=loading(2, 2)), Facts())

    (alone,) = (use for use in cause.changes if use.change == "no_workers")
    assert alone.step_s == pytest.approx(0.022)


def test_a_cheaper_sample_gives_back_the_cpus_that_workers_share_with_the_model() -> None:
    """Two workers compute 24 of 40 ms on the model's two CPUs: 12 in its 20 ms, of each a half.

    Where one computes at a time, a thread of the model may wait for all of them.
    """
    account = step(
        data_wait=20,
        forward=20,
        loader=loading(2, 80, computes_s=0.024),
        cpus=2.0,
        model_threads=2,
    )

    cause = data_wait(account, Facts())

    (cheaper,) = (use for use in cause.changes if use.change == "cheaper_sample")
    assert (cheaper.step_s, cheaper.least_s) == pytest.approx((0.014, 0.008))
