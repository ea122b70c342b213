"""The account of a run: what its readings, settings and documents become in seconds."""

import msgspec
import pytest
from support.audits import CHIP, product
from support.batches import Batch
from support.captures import rank_of
from support.causes.host import OWNER
from support.light import make_audit

from trainperf.analysis.diagnosis.account import OWN, StepAccount
from trainperf.analysis.diagnosis.of_run import (
    Evidence,
    account_of,
    facts_of,
    light_of,
    with_workers_needed,
)
from trainperf.analysis.summary.schema import (
    CauseFacts,
    HostShare,
    LineShare,
    MachineFacts,
    PhaseLines,
    RunFacts,
    Summary,
)
from trainperf.core.artifacts.audit import MeasuredChip
from trainperf.core.artifacts.folder import Documents
from trainperf.core.steps.records import Scalar
from trainperf.meters.fold import Reading
from trainperf.traces.capture_files import CaptureFacts, CaptureReport


NO_FACTS: dict[str, dict[str, object]] = {
    name: {} for name in ("earlier", "software", "hardware", "notes", "faults", "dropped")
}


def summary(
    *,
    device: str = "cpu",
    config: dict[str, Scalar] | None = None,
    ranks: int = 1,
    steady: int = 188,
    fit_s: float = 20.0,
    readings: dict[str, float | Reading] | None = None,
    known: dict[str, object] | None = None,
    **phases_ms: float | tuple[float, ...],
) -> Summary:
    """Two hundred steps whose phases take so many milliseconds, on each rank."""
    spent = {
        f"phase_{slot}_s": tuple(
            ms / 1e3 for ms in (value if isinstance(value, tuple) else (value,))
        )
        for slot, value in phases_ms.items()
    }
    made = {name: Reading(value=max(each), unit="s", per_rank=each) for name, each in spent.items()}
    step_s = sum(max(each) for each in spent.values())
    more = {
        name: value if isinstance(value, Reading) else Reading(value=value, unit="")
        for name, value in {"step_mean_s": step_s, **(readings or {})}.items()
    }
    run = RunFacts(
        path="x",
        name="x",
        state="finished",
        end_reason=None,
        started_at="",
        attempts=1,
        continues="",
        ranks=tuple(range(ranks)),
        world_size=ranks,
        device=device,
        steps=200,
        steady_steps=steady,
        left_out_steps=0,
        fit_s=fit_s,
        config={"loop": "plain", **(config or {})},
        **NO_FACTS,
    )
    usual: dict[str, object] = {
        "ledger_s": {"forward": 15.0, "validation": 3.0, "others_turn": 2.0},
        **{name: {} for name in ("gaps", "excluded", "sequence_lengths", "actions_s")},
        "synchronisation": (),
    }
    return Summary(run=run, readings={**made, **more}, **{**usual, **(known or {})})


def account(of: Summary, **more: object) -> StepAccount:
    """Of its evidence."""
    evidence = Evidence(summary=of, **more)
    return account_of(evidence, facts_of(evidence))


def ms(made: StepAccount) -> dict[str, float]:
    """The slots in milliseconds, without those that are empty."""
    return {slot: round(1e3 * spent, 6) for slot, spent in made.loop_s.items() if spent}


# -- slots ----------------------------------------------------------------------------------------


def test_a_slot_is_that_of_the_rank_where_it_is_largest() -> None:
    """A bound must hold for the slowest."""
    made = account(summary(data_wait=(0, 20), forward=(40, 20), ranks=2))

    assert ms(made) == {"data_wait": 20, "forward": 40}


@pytest.mark.parametrize(
    ("callbacks", "other", "left"),
    [(10, 5, {"callbacks": 4, "other": 5}), (4, 5, {"other": 3}), (1, 1, {})],
)
def test_our_own_hooks_are_not_the_users(
    callbacks: float, other: float, left: dict[str, float]
) -> None:
    """Six milliseconds are in callbacks as far as there are so many, else outside every phase."""
    of = summary(forward=40, callbacks=callbacks, other=other, readings={"overhead_s": 0.006})

    made = ms(account(of))

    assert made.pop(OWN) == pytest.approx(min(6, callbacks + other))
    assert made == {"forward": 40, **left}


def test_what_rank_0_sends_to_all_is_no_work_of_the_users() -> None:
    """It is in its callbacks and in no phase; the others' are their own."""
    sends = {"callbacks": (6, 1), "other": (6, 0), "forward": (10, 10)}
    config: dict[str, Scalar] = {"loader": "DataLoaderDispatcher"}

    assert ms(account(summary(ranks=2, config=config, **sends))) == {"callbacks": 1, "forward": 10}
    assert ms(account(summary(ranks=2, **sends))) == {"callbacks": 6, "other": 6, "forward": 10}


def test_from_outside_samples_tell_a_loader_from_the_loops_own_code() -> None:
    """A quarter of what lies between update and forward is in a loader."""
    lines = PhaseLines(slot="data_wait", samples=80, owner=OWNER, lines=(), loader_fraction=0.25)
    outside: dict[str, Scalar] = {"loop": "outside"}
    loads: dict[str, Scalar] = {**outside, "num_workers": 0}
    seen, unseen, alone = (
        account(summary(data_wait=20, forward=20, config=config, known={"lines": known}))
        for known, config in (((lines,), loads), ((), loads), ((), outside))
    )

    assert ms(seen) == {"data_wait": 5, "between": 15, "forward": 20}
    assert ms(unseen) == {"data_wait": 20, "forward": 20}
    assert ms(alone) == {"between": 20, "forward": 20}
    heard = summary(
        data_wait=20,
        forward=20,
        config={"loop": "outside, loader heard"},
        known={"lines": (lines,)},
    )
    assert ms(account(heard)) == {"data_wait": 20, "forward": 20}


def test_too_few_steady_steps_have_no_seconds_to_share_out() -> None:
    """Ten of them are an anecdote, sampled or not; pauses of the fit are known all the same."""
    line = LineShare(where="a.py:1", function="", fraction=0.9, samples=40)
    lines = PhaseLines(slot="forward", samples=40, owner=line, lines=(line,))
    made = account(summary(forward=40, steady=19, known={"lines": (lines,)}))

    assert not made.judged
    assert (made.step_s, made.loop_s) == (0.0, {})
    assert made.pauses_s == {"validation": 3.0}


def test_waiting_for_another_run_is_no_part_of_the_fit() -> None:
    """Two of twenty seconds."""
    made = account(summary(forward=40))

    assert (made.fit_s, made.steps_s) == (18.0, 15.0)


def test_threads_that_serve_the_loader_are_not_handed_to() -> None:
    """Pinning and the queue have their own time."""
    threads = {"wandb": 0.004, "_pin_memory_loop": 0.010, "QueueFeederThread": 0.010}

    assert account(summary(forward=40, known={"threads_s": threads})).threads_s == {"wandb": 0.004}


# -- devices --------------------------------------------------------------------------------------


def test_a_host_that_computes_has_no_device() -> None:
    """Its seconds are the step's."""
    assert account(summary(forward=40)).device is None
    assert account(summary(forward=40)).host_decides


@pytest.mark.parametrize(("overlap", "copies_ms"), [(None, 10), (0.25, 7.5), (1.0, 0)])
def test_copies_that_a_trace_shows_beside_computing_are_none(
    overlap: float | None, copies_ms: float
) -> None:
    """Of steps of 50 ms a device stalls for 8 % and copies for 20 %."""
    readings: dict[str, float | Reading] = {
        "data_stall_fraction": 0.08,
        "h2d_fraction": 0.2,
        "host_bound_fraction": 0.7,
    }
    traced = rank_of(h2d_s=0.01, h2d_overlap_fraction=overlap, idle_sync_fraction=0.1)
    capture = CaptureReport(
        ranks=(traced,), capture=CaptureFacts(first_step=9, first_index=9, complete_steps=3)
    )

    device = account(
        summary(device="cuda", forward=50, readings=readings), captures=(capture,)
    ).device

    assert device is not None
    assert 1e3 * (device.copies_s or 0) == pytest.approx(copies_ms)
    assert 1e3 * (device.data_s or 0) == pytest.approx(4)
    assert 1e3 * (device.value_s or 0) == pytest.approx(5)
    assert device.host_bound == 0.7


@pytest.mark.parametrize(("stalled", "updated_on"), [(0.2, "cuda"), (0.0, "cpu")])
def test_a_device_that_starves_is_not_bound_by_its_host(stalled: float, updated_on: str) -> None:
    """It has caught up because there was no data, or while the host updated the weights."""
    readings: dict[str, float | Reading] = {
        "data_stall_fraction": stalled,
        "host_bound_fraction": 1.0,
    }
    config = {"optimizer_device": updated_on}

    device = account(summary(device="cuda", forward=50, readings=readings, config=config)).device

    assert device is not None
    assert device.host_bound is None


def test_without_a_capture_what_only_it_shows_is_not_known() -> None:
    """`None` is not measured."""
    device = account(summary(device="cuda", forward=50)).device

    assert device is not None
    assert (device.data_s, device.value_s, device.communication_s, device.busy_s) == (None,) * 4


# -- loaders --------------------------------------------------------------------------------------


def loader(
    workers: int | None,
    wait: float,
    rest: float,
    *,
    host: HostShare | None = None,
    batch: Batch | None = None,
    ranks: int = 1,
    device: str = "cpu",
    **config: Scalar,
) -> tuple[float, float, float] | None:
    """Milliseconds of making and handing over, and the share asleep."""
    given = config if workers is None else {"num_workers": workers, **config}
    of = summary(
        data_wait=wait,
        forward=rest,
        config=given,
        ranks=ranks,
        device=device,
        known={"host": host},
    )
    documents = Documents(loader=None if batch is None else batch.anatomy())
    made = account(of, documents=documents).loader
    if made is None:
        return None
    return round(1e3 * made.making_s, 6), round(1e3 * made.transport_s, 6), round(made.asleep, 6)


def cpu_time(ran: float, workers_ran: float | None = None) -> HostShare:
    """Of a rank of two CPUs that never lacks one."""
    return HostShare(
        rank=0,
        host="a",
        ranks=1,
        cpus_per_rank=2.0,
        threads=1,
        workers=0,
        waited_fraction=0.0,
        ran_fraction=ran,
        workers_ran=workers_ran,
    )


ASLEEP = cpu_time(1 - 0.9 * 40 / 42)
"""Of 40 ms of making 36 are waited for; the model's 2 ms may be among these."""

BYTES_10M = Batch(getitem=4, collate=25, receiving=0.3, size=7_000_000, workers=1)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (loader(0, 30, 20), (30, 1, 0)),
        (loader(0, 40, 2, host=ASLEEP), (40, 1, 0.85)),
        (loader(0, 40, 2, host=ASLEEP, ranks=2), (40, 1, 0)),
        (loader(2, 40, 2, host=ASLEEP), (84, 1, 0)),
        (loader(2, 10, 40), (100, 1, 0)),
        (loader(2, 0.1, 49.9, host=cpu_time(0.9, 0.6)), (30, 1, 0)),
        (loader(2, 7, 3, host=cpu_time(0.9, 0.6)), (6, 1, 0)),
        (loader(0, 64, 80, accumulate_grad_batches=8), (64, 8, 0)),
        (loader(1, 10, 40, batch=BYTES_10M, device="cuda"), (29, 1.3, 0)),
        (loader(1, 10, 40, batch=BYTES_10M), (29, 2.3, 0)),
        (loader(None, 10, 40), None),
    ],
    ids=[
        "no workers: waiting is making",
        "seen asleep",
        "ranks wait for each other, too",
        "what workers do this thread does not tell",
        "workers that are waited for make all the time",
        "workers that nobody waits for make as long as they compute",
        "a short wait of idle workers is for handing over",
        "a step of eight batches has eight round trips",
        "a look into the loader",
        "a model on the CPU reads a batch for the first time in its step",
        "no loader is known",
    ],
)
def test_making_handing_over_and_sleeping(found: object, expected: object) -> None:
    """By the anatomy, else by the wait and what was seen to compute."""
    assert found == expected


@pytest.mark.parametrize(("fraction", "others"), [(0.6, 1.4), (0.2, 0.0)])
def test_neighbours_take_cpus_where_they_do_most_of_the_time(
    fraction: float, others: float
) -> None:
    """Not for a moment."""
    busy = CauseFacts(
        cause="host shared",
        host="a",
        fraction=fraction,
        steps=9,
        first_step=0,
        last_step=8,
        values={"others_cpus": 1.4},
    )
    machine = MachineFacts(hosts=(), causes=(busy,))

    assert account(summary(forward=40, known={"machine": machine})).others_cpus == others


def test_the_summary_says_how_many_workers_keep_up() -> None:
    """Also where nothing waits: 50 ms before 20."""
    anatomy = Batch(getitem=49).anatomy()
    waits = summary(data_wait=1, forward=20, known={"loader": anatomy})
    said = with_workers_needed(waits, 1).loader

    assert said is not None
    assert said.workers_needed == 3


# -- floors ---------------------------------------------------------------------------------------


def test_a_measured_chip_is_not_slower_than_the_step_it_ran() -> None:
    """Others used the machine when it was measured: a floor of 20 ms in a step of 10."""
    documents = Documents(
        audit=make_audit(product("mm", flops=2 * 10**10)), chip=MeasuredChip(chip=CHIP)
    )

    usual, raised = light_of(documents), light_of(documents, 0.010)

    assert usual is not None
    assert raised is not None
    assert usual.step.floor_s == pytest.approx(0.020)
    assert raised.step.floor_s == pytest.approx(0.010)


def test_a_step_that_is_unlike_the_audited_one_has_no_regions() -> None:
    """Its shares are not those of the other steps."""
    documents = Documents(audit=make_audit(product("mm", 20)), chip=MeasuredChip(chip=CHIP))
    light = light_of(documents)
    like = summary(forward=20, readings={"flops_per_s": 1e12})
    unlike = summary(forward=20, readings={"flops_per_s": Reading(value=None, unit="FLOP/s")})

    assert len(account(like, documents=documents, light=light, typical=light).regions) == 1
    assert account(unlike, documents=documents, light=light, typical=light).regions == ()
    assert account(like, documents=documents, light=light).regions == ()


def test_the_worst_rank_and_settings_are_among_the_facts() -> None:
    """Hardware beside configuration."""
    of = summary(forward=(10, 30), ranks=2, config={"num_workers": 2})
    run = msgspec.structs.replace(of.run, hardware={"cpu_count": 8})
    facts = facts_of(Evidence(summary=msgspec.structs.replace(of, run=run)))

    assert facts.worst("phase_forward_s") == 0.030
    assert (facts.number("cpu_count"), facts.number("num_workers")) == (8, 2)
