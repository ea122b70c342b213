"""Each second has one owner: what a cause claims is gone for those after it."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from support.accounts import (
    Seen,
    audit_of,
    facts_of,
    light,
    loading,
    meeting,
    on_gpu,
    region,
    seen,
    step,
)
from support.causes import host, loader, operators, ranks

from trainperf.analysis.diagnosis import DETECTORS, causes_of
from trainperf.analysis.diagnosis.account import OWN, WORK, Region, StepAccount
from trainperf.analysis.diagnosis.cause import Cause
from trainperf.core.loop_kind import LIGHTNING


SLOTS = ("data_wait", "h2d", *WORK, "callbacks", "loop", "other", OWN)

ROWS = (
    {"name": "addmm", "kind": "matmul", "flops": 10**9},
    {"name": "clone", "kind": "copy"},
    {"name": "_to_copy", "kind": "copy", "result_dtype": "bf16"},
    {"name": "sin", "constant": True},
    {"name": "mul", "read_bytes": 10**6, "written_bytes": 10**6, "inner_bytes": 2 * 10**6},
    {"name": "add", "calls": 400},
    {"name": "clone", "logs": True, "line": "train.py:50"},
    {"name": "_local_scalar_dense", "calls": 100, "line": "train.py:21"},
    {"name": "sort", "line": "train.py:31", "module": None},
    {"name": "log_softmax", "line": "train.py:41", "calls": 1},
    {"name": "mm", "kind": "matmul", "precision": "fp64", "dtypes": ("fp64",)},
)
"""What an audit may see, one of each kind that a detector looks for."""

KNOWN = (
    {"settings": {"detect_anomaly": True}},
    {"settings": {"log_every_n_steps": 1}},
    {"settings": {"accumulate_grad_batches": 4}},
    {"settings": {"allreduces_per_step": 4.0, "micro_batches_per_step": 4.0}},
    {"readings": {"padding_fraction": 0.4}},
    {"readings": {"overflow_rate": 0.3}},
    {"lines": host.python(0.5).facts.summary.lines},
)
"""What may be known beside the seconds."""

milliseconds = st.floats(0.0, 50.0).map(lambda ms: 0.0 if ms < 0.01 else ms)


@st.composite
def audited(draw: st.DrawFn, slots: dict[str, float]) -> tuple[Region, ...]:
    """Operators that fill a part of forward, backward and the update."""
    rows = []
    for slot in WORK:
        kinds = draw(st.lists(st.sampled_from(ROWS), max_size=4))
        weights = [draw(st.tuples(st.integers(0, 9), st.integers(0, 9))) for _ in kinds]
        whole = sum(map(sum, weights))
        filled = draw(st.floats(0.1, 1.0)) * slots[slot]
        for kind, (run, before) in zip(kinds, weights, strict=True):
            ms, python_ms = (filled * each / whole if whole else 0.0 for each in (run, before))
            ideal = draw(st.floats(0.0, 1.0)) * (ms + python_ms)
            row = region(python=python_ms, ms=ms, ideal=ideal, part=slot, **kind)
            rows.append(row)
    return tuple(rows)


@st.composite
def trainings(draw: st.DrawFn) -> Seen:
    """Steps of any shape, with and without a device, other ranks and threads."""
    slots = {slot: draw(milliseconds) for slot in SLOTS}
    rows = draw(audited(slots))
    device = draw(st.sampled_from([None, on_gpu(), on_gpu(host_bound=0.0, data_s=0.01)]))
    tail = draw(st.floats(0.0, 1.0)) * slots["backward"]
    account = step(
        *rows,
        device=device,
        loader=draw(st.sampled_from([None, loading(0, slots["data_wait"]), loading(2, 100)])),
        threads_s=draw(st.sampled_from([{}, {"wandb": 0.01}])),
        meetings=draw(st.sampled_from([{}, {"backward": meeting(tail, tail)}])),
        cpus=4.0,
        pauses_s={"validation": draw(milliseconds), "checkpoint": draw(milliseconds)},
        **slots,
    )
    known: dict[str, object] = {"settings": {}, "readings": {}}
    for each in draw(st.lists(st.sampled_from(KNOWN), unique_by=str, max_size=4)):
        known |= {
            name: {**known[name], **value} if name in ("settings", "readings") else value
            for name, value in each.items()
        }
    documents = audit_of(*rows, device="cpu" if device is None else "cuda")
    gaps = {"validation": 3, "checkpoint": 3}
    return Seen(account, facts_of(documents=documents, light=light(), gaps=gaps, **known))


ANY = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow], derandomize=True
)


REDUCTIONS = frozenset({"no_sync", "allreduce_tail"})
"""They run beside the operators of backward or after them: no audit says which wait for them."""


def claimed(training: Seen) -> Iterator[tuple[Cause, StepAccount, StepAccount]]:
    """Each cause that claims, with the account before it and after it."""
    left = training.account
    for detect in DETECTORS:
        cause = detect(left, training.facts)
        if cause is not None and cause.claim is not None:
            before, left = left, left.without(cause.claim)
            yield cause, before, left


def left_of(training: Seen) -> StepAccount:
    """What none of its causes owns."""
    return [training.account, *(left for _, _, left in claimed(training))][-1]


@ANY
@given(trainings())
def test_what_is_claimed_and_what_is_left_is_the_step(training: Seen) -> None:
    """In every slot, and of every pause: nobody claims what another one has."""
    left = left_of(training)
    owned, paused = Counter(left.loop_s), Counter(left.pauses_s)
    for cause, before, _ in claimed(training):
        # Work of a device that decides takes nothing from the thread that launches it.
        if before.host_decides or not cause.claim.regions:
            owned.update(cause.claim.owns_s)
        paused.update({kind: cause.claim.pauses_s.get(kind, 0.0) for kind in before.pauses_s})

    assert {slot: owned[slot] for slot in training.account.loop_s} == pytest.approx(
        training.account.loop_s, abs=1e-9
    )
    assert dict(paused) == pytest.approx(training.account.pauses_s, abs=1e-9)


@ANY
@given(trainings())
def test_operators_that_are_left_fit_into_what_is_left_of_their_phase(training: Seen) -> None:
    """Else those after would claim seconds of somebody else."""
    causes, left = causes_of(*training), left_of(training)
    assume(training.account.host_decides)
    assume(not REDUCTIONS & {cause.id for cause in causes})

    for slot in WORK:
        rows_s = sum(row.seconds for row in left.regions if row.slot == slot)
        assert rows_s <= left.loop_s[slot] + 1e-9


@ANY
@given(trainings())
def test_no_cause_removes_more_than_the_step(training: Seen) -> None:
    """Nor more than it owns, where it owns seconds of the training thread."""
    for cause, before, after in claimed(training):
        own = cause.claim.owns_s
        if own and before.device is None:
            assert cause.claim.removes_s <= sum(own.values()) + 1e-9
        assert -1e-9 <= cause.claim.removes_s <= before.step_s + 1e-9
        assert after.step_s == before.step_s
        assert len(after.regions) + len(cause.claim.regions) == len(before.regions)


def test_what_nobody_claims_stays_as_it_is() -> None:
    """An ordinary step has no cause, and all of its seconds."""
    assert causes_of(step(data_wait=1, forward=30, backward=60, optimizer=8), facts_of()) == ()


STARVING = on_gpu(data_s=0.020, host_bound=0.0)
LATE = {"backward": meeting(31, 1, data_wait=30)}
GATHERED = {"other": meeting(33, 3)}
TWO = {"ranks": 2, "world_size": 2}
LATE_RANK = seen(
    step(data_wait=50, forward=30, backward=20, meetings=LATE),
    synchronisation=(ranks.point(30, ranks.lags(1, 30)),),
    **TWO,
)
_SMALL = operators.tiny_micro_batches(
    settings={**operators.room(8), "allreduces_per_step": 8.0, "micro_batches_per_step": 8.0}
)
REDUCED_EIGHT_TIMES = Seen(
    replace(
        _SMALL.account,
        step_s=0.1,
        loop_s={"forward": 0.06, "backward": 0.04},
        meetings={"backward": meeting(8, 8)},
    ),
    _SMALL.facts,
)
SCORES = region("where", 8, shapes=(operators.SCORES,), read_bytes=10**6, inner_bytes=10**6)


@pytest.mark.parametrize(
    ("training", "ids"),
    [
        (host.audited(host.LOGGED, loop=30, settings={"log_every_n_steps": 1}), ["logging"]),
        (host.audited(*host.METRIC, host.LOGGED), ["logging", "metrics_every_batch"]),
        (operators.sixty(*operators.EAGER, SCORES), ["attention"]),
        (
            loader.crowded(0.3, cpus=4.0, workers=32, workers_waited=0.8),
            ["workers_compete"],
        ),
        (LATE_RANK, ["straggler", "data_wait"]),
        (
            seen(
                step(other=33, forward=43, meetings=GATHERED),
                synchronisation=(ranks.point(30, at="other"),),
                **TWO,
            ),
            ["straggler"],
        ),
        (
            seen(
                step(data_wait=10, forward=30, loader=loading(0, 10)),
                readings={"step_s": 0.04, "step_iqr_s": 0.02, "data_wait_fraction": 0.25},
            ),
            ["data_wait"],
        ),
        (
            seen(step(data_wait=20, forward=30, device=STARVING, loader=loading(0, 20))),
            ["data_wait"],
        ),
        (operators.tiny(20, 1500, device=on_gpu()), ["launch_bound"]),
        (REDUCED_EIGHT_TIMES, ["no_sync", "small_micro_batches"]),
        (loader.returning(), ["epoch_start"]),
    ],
    ids=[
        "a loop that logs is logging",
        "metrics and logging are told apart",
        "what is done to scores is no chain of its own",
        "workers that lack CPUs instead of the wait for them",
        "one slow loader, and what all ranks wait",
        "a wait for a late rank is no work without a name",
        "a loader that brings batches in bursts is why steps vary",
        "a device that starves is not bound by its host",
        "launches instead of the marks that show them",
        "what each micro-batch reduces is no price of its calls",
        "workers that start with an epoch are no slow steps",
    ],
)
def test_what_an_earlier_cause_owns_no_later_one_has(training: Seen, ids: list[str]) -> None:
    """One cause, one owner."""
    assert [cause.id for cause in causes_of(*training)] == ids


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        # 30 of the 50 ms that rank 1 waits for data are its lateness; both wait for 20.
        (LATE_RANK, {"straggler": 0.030, "data_wait": 0.020}),
        # 60 ms that nothing hides: three of four reductions are 45 of them, 15 are the tail.
        (
            ranks.reduces(20, device=on_gpu(communication_s=0.06), **ranks.FOURFOLD),
            {"no_sync": 0.045, "allreduce_tail": 0.015},
        ),
        # Of 20 ms that nothing hides 10 are a wait for rank 3.
        (ranks.waited(0.010, 3), {"straggler": 0.010, "allreduce_tail": 0.010}),
    ],
    ids=["a late rank's wait", "redundant reductions", "what others wait for a late rank"],
)
def test_what_one_cause_removes_of_a_wait_no_other_one_does(
    training: Seen, expected: dict[str, float]
) -> None:
    """By their seconds."""
    removed = {cause.id: cause.claim.removes_s for cause, _, _ in claimed(training)}

    assert removed == pytest.approx(expected)


@pytest.mark.parametrize(("buckets", "most_s"), [(1, 0.012), (2, 0.024), (9, 0.040)])
def test_reductions_that_backward_hides_are_in_the_bound_only(buckets: int, most_s: float) -> None:
    """12 ms of the last bucket are lost; of all of them at most all of backward, 40 ms."""
    ((cause, _, _),) = claimed(ranks.reduces(12, ddp_buckets=buckets))

    assert cause.claim.removes_s == pytest.approx(0.012)
    assert cause.claim.at_most_s == pytest.approx(most_s)


def test_python_that_samples_saw_has_the_upper_end_of_its_interval_as_its_bound() -> None:
    """40 % of 60 ms, and 50 % at most."""
    ((cause, _, left),) = claimed(host.python(0.3))

    assert cause.claim.removes_s == pytest.approx(0.024)
    assert cause.claim.at_most_s == pytest.approx(0.030)
    assert left.loop_s["forward"] == pytest.approx(0.036)


def test_only_threads_of_loggers_go_with_the_hook_that_feeds_them() -> None:
    """A prefetcher has work without it, too."""
    threads_s = {"tensorboard": 0.005, "prefetch": 0.005}
    ((cause, _, left),) = claimed(host.hooks(40, threads_s=threads_s))

    assert tuple(cause.claim.threads) == ("tensorboard",)
    assert left.threads_s == {"prefetch": 0.005}


def test_a_loggers_thread_goes_with_the_code_of_a_loop_that_feeds_it() -> None:
    """It is no thread by itself then; in a framework's loop callbacks would feed it."""
    training = host.unnamed(11, threads_s={"tensorboard": 0.005})
    framework = host.unnamed(11, threads_s={"tensorboard": 0.005}, loop=LIGHTNING)

    own, others = (
        {cause.id: cause.claim for cause in causes_of(*given)} for given in (training, framework)
    )

    assert own["unnamed_time"].threads == ("tensorboard",)
    assert "busy_thread" not in own
    assert others["busy_thread"].threads == ("tensorboard",)
