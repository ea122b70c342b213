"""The account of a run: what its readings, settings and documents become in seconds."""

import msgspec
import pytest
from support.accounts import audit_of, facts_of
from support.audits import CHIP, product
from support.captures import rank_of
from support.causes.host import OWNER
from support.causes.loader import sampled
from support.light import make_audit

from trainperf.analysis.diagnosis.account import OWN, StepAccount
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.diagnosis.of_run import (
    account_of,
    light_of,
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
        ranks=tuple(range(ranks)),
        world_size=ranks,
        device=device,
        steps=200,
        steady_steps=steady,
        fit_s=fit_s,
        config={"loop": "plain", **(config or {})},
    )
    ledger_s = {"forward": 15.0, "validation": 3.0, "others_turn": 2.0}
    return Summary(run=run, readings={**made, **more}, **{"ledger_s": ledger_s, **(known or {})})


def account(of: Summary, **more: object) -> StepAccount:
    """Of its evidence."""
    return account_of(Facts(summary=of, **more))


def ms(made: StepAccount) -> dict[str, float]:
    """The slots in milliseconds, without those that are empty."""
    return {slot: round(1e3 * spent, 6) for slot, spent in made.loop_s.items() if spent}


# -- slots ----------------------------------------------------------------------------------------


SENDS = {"callbacks": (6, 1), "other": (6, 0), "forward": (10, 10)}
QUARTER = PhaseLines(slot="data_wait", samples=80, owner=OWNER, lines=(), loader_fraction=0.25)
"""Of what lies between update and forward a quarter was seen in a loader."""
WAITS = {"data_wait": 20, "forward": 20}
OUTSIDE = {"loop": "outside"}
LOADS = {**OUTSIDE, "num_workers": 0}
OURS = {"overhead_s": 0.006}

SLOTS: dict[str, tuple[dict[str, object], dict[str, float]]] = {
    # A bound must hold for the slowest.
    "that of the rank where it is largest": (
        {"data_wait": (0, 20), "forward": (40, 20), "ranks": 2},
        {"data_wait": 20, "forward": 40},
    ),
    # Six milliseconds are in callbacks as far as there are so many, else outside every phase.
    **{
        f"our own hooks in {callbacks} and {other} ms": (
            {"forward": 40, "callbacks": callbacks, "other": other, "readings": OURS},
            {"forward": 40, OWN: min(6, callbacks + other), **left},
        )
        for callbacks, other, left in (
            (10, 5, {"callbacks": 4, "other": 5}),
            (4, 5, {"other": 3}),
            (1, 1, {}),
        )
    },
    # It is in its callbacks and in no phase; the others' are their own.
    "what rank 0 sends to all is no work of the user's": (
        {**SENDS, "ranks": 2, "config": {"loader": "DataLoaderDispatcher"}},
        {"callbacks": 1, "forward": 10},
    ),
    "what it does itself is": ({**SENDS, "ranks": 2}, {"callbacks": 6, "other": 6, "forward": 10}),
    "samples tell a loader from the loop's own code": (
        {**WAITS, "config": LOADS, "known": {"lines": (QUARTER,)}},
        {"data_wait": 5, "between": 15, "forward": 20},
    ),
    "without samples it is the loader's": ({**WAITS, "config": LOADS}, WAITS),
    "without a loader it is the loop's": (
        {**WAITS, "config": OUTSIDE},
        {"between": 20, "forward": 20},
    ),
    "a loader that is heard tells it itself": (
        {
            **WAITS,
            "config": {"loop": "outside, loader heard"},
            "known": {"lines": (QUARTER,)},
        },
        WAITS,
    ),
}


@pytest.mark.parametrize(("given", "slots"), SLOTS.values(), ids=SLOTS)
def test_a_slot_has_what_the_training_thread_spends_there(
    given: dict[str, object], slots: dict[str, float]
) -> None:
    """In milliseconds."""
    assert ms(account(summary(**given))) == slots


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


STALLS = {"data_stall_fraction": 0.08, "h2d_fraction": 0.2, "host_bound_fraction": 0.7}


@pytest.mark.parametrize(
    ("readings", "overlap", "expected"),
    [
        *(
            (STALLS, overlap, {"copies_s": copies_s, "data_s": 0.004, "value_s": 0.005})
            for overlap, copies_s in ((0.0, 0.010), (0.25, 0.0075), (1.0, 0.0))
        ),
        (STALLS, None, {"copies_s": 0.010, "host_bound": 0.7, "value_s": None, "busy_s": None}),
        # It has caught up because there was no data.
        ({**STALLS, "data_stall_fraction": 0.2}, None, {"host_bound": None}),
        ({}, None, dict.fromkeys(("data_s", "value_s", "communication_s", "busy_s"))),
    ],
    ids=[
        "a capture without overlap",
        "copies that a trace shows beside computing are none",
        "all of them",
        "without a capture what only it shows is not known",
        "a device that starves is not bound by its host",
        "nothing was measured",
    ],
)
def test_a_device_has_its_marks_and_what_a_capture_shows(
    readings: dict[str, float], overlap: float | None, expected: dict[str, float | None]
) -> None:
    """Of steps of 50 ms."""
    traced = rank_of(h2d_s=0.01, h2d_overlap_fraction=overlap, idle_sync_fraction=0.1)
    capture = CaptureReport(
        ranks=(traced,), capture=CaptureFacts(first_step=9, first_index=9, complete_steps=3)
    )
    captures = () if overlap is None else (capture,)

    of = summary(device="cuda", forward=50, readings=readings)
    device = account(of, captures=captures).device

    assert {name: getattr(device, name) for name in expected} == pytest.approx(expected)


def test_a_host_that_updates_the_weights_binds_no_device() -> None:
    """The device has caught up while it did."""
    readings = {"host_bound_fraction": 1.0}
    config = {"optimizer_device": "cpu"}

    device = account(summary(device="cuda", forward=50, readings=readings, config=config)).device

    assert device.host_bound is None


# -- loaders --------------------------------------------------------------------------------------


def loader(
    workers: int | None,
    wait: float,
    rest: float,
    *,
    host: HostShare | None = None,
    ranks: int = 1,
    rest_in: str = "forward",
    **config: Scalar,
) -> tuple[float, float, float] | None:
    """Milliseconds of making and handing over, and the share asleep."""
    given = config if workers is None else {"num_workers": workers, **config}
    of = summary(data_wait=wait, config=given, ranks=ranks, known={"host": host}, **{rest_in: rest})
    made = account(of).loader
    if made is None:
        return None
    return round(1e3 * made.making_s, 6), round(1e3 * made.transport_s, 6), round(made.asleep, 6)


def cpu_time(ran: float, workers_ran: float | None = None) -> HostShare:
    """Of a rank of two CPUs that never lacks one."""
    return HostShare(
        ranks=1,
        cpus_per_rank=2.0,
        threads=1,
        workers=0,
        waited_fraction=0.0,
        ran_fraction=ran,
        workers_ran=workers_ran,
    )


ASLEEP = cpu_time(1 - 0.9 * 40 / 42)
"""Of 42 ms 36 are slept."""


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (loader(0, 30, 20), (30, 1, 0)),
        (loader(0, 40, 2, host=ASLEEP), (40, 1, 0.9)),
        (loader(0, 40, 2, host=ASLEEP, rest_in="callbacks"), (40, 1, 0.85)),
        (loader(0, 40, 2, host=ASLEEP, ranks=2), (40, 1, 0)),
        (loader(2, 40, 2, host=ASLEEP), (84, 1, 0)),
        (loader(2, 10, 40), (100, 1, 0)),
        (loader(2, 0.1, 49.9, host=cpu_time(0.9, 0.6)), (30, 1, 0)),
        (loader(2, 7, 3, host=cpu_time(0.9, 0.6)), (6, 1, 0)),
        (loader(0, 64, 80, accumulate_grad_batches=8), (64, 8, 0)),
        (loader(None, 10, 40), None),
    ],
    ids=[
        "no workers: waiting is making",
        "seen asleep, as the model's 2 ms are computed",
        "a callback's may be among these",
        "ranks wait for each other, too",
        "what workers do this thread does not tell",
        "workers that are waited for make all the time",
        "workers that nobody waits for make as long as they compute",
        "a short wait of idle workers is for handing over",
        "a step of eight batches has eight round trips",
        "no loader is known",
    ],
)
def test_making_handing_over_and_sleeping(found: object, expected: object) -> None:
    """By the wait and what was seen to compute."""
    assert found == expected


@pytest.mark.parametrize(("making", "idle"), [((9.0,) * 4, 0), ((9.0, 0, 0, 0), 3), ((), 2)])
def test_a_dataset_is_believed_where_nobody_saw_its_workers(
    making: tuple[float, ...], idle: int
) -> None:
    """It says that it has two shards."""
    of = summary(data_wait=60, forward=20, config={"num_workers": 4, "dataset_shards": 2})
    made = account(of, documents=Documents(lines=sampled(*making) if making else None)).loader

    assert made.idle == idle


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


# -- floors ---------------------------------------------------------------------------------------


def test_a_measured_chip_is_not_slower_than_the_step_it_ran() -> None:
    """Others used the machine when it was measured: a floor of 20 ms in a step of 10."""
    documents = Documents(
        audit=make_audit(product("mm", flops=2 * 10**10)), chip=MeasuredChip(chip=CHIP)
    )

    usual, raised = light_of(documents), light_of(documents, 0.010)

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
    facts = Facts(summary=msgspec.structs.replace(of, run=run))

    assert facts.worst("phase_forward_s") == 0.030
    assert (facts.number("cpu_count"), facts.number("num_workers")) == (8, 2)


@pytest.mark.parametrize(
    ("configured", "number"), [(3, 3), ("3 to 4", 4), (None, 4), (0, 1)], ids=str
)
def test_micro_batches_that_vary_are_those_of_the_audited_step(
    configured: int | str | None, number: int
) -> None:
    """Where an epoch ends with a smaller group the configuration has no one number."""
    facts = facts_of(
        settings={"accumulate_grad_batches": configured}, documents=audit_of(micro_batches=4)
    )

    assert facts.micro_batches == number
