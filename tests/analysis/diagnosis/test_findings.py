"""Causes in words: one gain for each, one order for all, and what nobody owns."""

from dataclasses import replace

import msgspec
import pytest
from support.accounts import Seen, audit_of, loading, on_gpu, region, seen, step
from support.causes.fit import spread
from support.causes.host import stalling
from support.causes.loader import alone, handing, waits
from support.causes.operators import PRECISION, sixty, unfused
from support.tried import AUTOCAST, FREE_LOADER, FUSED, TOGETHER, tried

from trainperf.analysis.diagnosis.findings import diagnose
from trainperf.core.artifacts.trials import TrialResult
from trainperf.core.findings import DAYS, Finding, ranked, saving


def findings(training: Seen, *trials: TrialResult) -> dict[str, Finding]:
    """By their id, in their order."""
    documents = training.facts.documents
    if trials:
        documents = replace(documents, trials=tried(*trials))
    found, _ = diagnose(training.account, replace(training.facts, documents=documents))
    return {each.id: each for each in found}


def changed(trial: TrialResult, **fields: object) -> TrialResult:
    """The trial with other fields."""
    return msgspec.structs.replace(trial, **fields)


def of_effort(name: str, gain: float | None, effort: str = "minutes", **more: object) -> Finding:
    """A finding that probably gains so much."""
    given = {"title": name, "advice": "Do it", "evidence": (), "action": "do it", **more}
    return Finding(id=name, gain=gain, effort=effort, **given)


WAITING = alone(20, 30)
"""Steps of 50 ms that make their batches for 20, on eight CPUs."""

UPDATING = seen(
    step(
        region("mul_", 20, fused=1, part="optimizer", calls=800),
        forward=40,
        backward=40,
        optimizer=20,
    )
)
"""Steps of 100 ms, 20 of them for an update that one kernel would make in one."""

WORKERS = TrialResult(
    id="workers_2",
    kind="change",
    title="2 workers",
    verdict="faster",
    speedup=1.2,
    low=1.15,
    high=1.25,
    apply="DataLoader(…, num_workers=2)",
    rules=("data_wait",),
    pairs=16,
)
SLOWER = changed(WORKERS, verdict="slower", speedup=0.9, low=0.88, high=0.92)


# -- one gain ------------------------------------------------------------------------------------


FASTER = "2 workers was tried: faster, 1.20× as fast (95 % CI 1.15–1.25), 16 pairs of blocks"
LAWS_OWN = {"gain": pytest.approx(50 / 31), "gain_upper_bound": pytest.approx(50 / 28)}
"""One worker makes a batch in 20 of 30 ms, and handing it over takes one."""

GAINS: dict[str, tuple[Seen, tuple[TrialResult, ...], tuple[str, ...], dict[str, object]]] = {
    "the law's": (
        WAITING,
        (),
        ("more_workers", "cheaper_sample"),
        {**LAWS_OWN, "fraction": pytest.approx(0.4), "measured_gain": None},
    ),
    # Of the 19 ms that an update would save 0.8.
    "a change that realises a part of what is removed": (
        UPDATING,
        (),
        ("fused_optimizer",),
        {
            "gain": pytest.approx(100 / (100 - 0.8 * 19)),
            "gain_upper_bound": pytest.approx(100 / (100 - 19 - 2)),
        },
    ),
    # Of 15 ms half the bytes are left, and a call of 5 µs; at best a GFLOP at 1 TFLOP/s, or half
    # of the roofline.
    "what keeps from the roofline in fp64 does so in fp32": (
        PRECISION[0].sees,
        (),
        ("single_precision",),
        {
            "gain": pytest.approx(20 / (20 - 0.9 * (15 - 0.005) / 2)),
            "gain_upper_bound": pytest.approx(20 / (20 - 10 - 2)),
        },
    ),
    # No workers take minutes, a cheaper sample hours.
    "the change that returns most for its effort": (
        alone(60, 25),
        (),
        ("more_workers", "cheaper_sample"),
        {"advice": "Load in 3 workers", "effort": "minutes"},
    ),
    "what was measured takes the place of the law's": (
        WAITING,
        (WORKERS,),
        ("more_workers", "cheaper_sample"),
        {"gain": 1.2, "action": "DataLoader(…, num_workers=2)", "confidence": "high"},
    ),
    # Then a sample must get cheaper.
    "a change that was refuted goes behind the others": (
        WAITING,
        (SLOWER,),
        ("cheaper_sample", "more_workers"),
        {"advice": "Make a sample cheaper", "measured_gain": None},
    ),
    "one number of workers that is slower refutes no other": (
        WAITING,
        (changed(SLOWER, id="workers_1", title="1 worker"), WORKERS),
        ("more_workers", "cheaper_sample"),
        {"gain": 1.2},
    ),
    "a vague interval decides nothing": (
        UPDATING,
        (changed(FUSED, verdict="undecided", low=0.5, high=2.0),),
        ("fused_optimizer",),
        {"measured_gain": None},
    ),
    # Batches from memory gained 1.31 at most.
    "a ceiling tightens the bound": (
        WAITING,
        (FREE_LOADER,),
        ("more_workers", "cheaper_sample"),
        {"gain": 1.31, "gain_upper_bound": 1.31, "fraction": pytest.approx(1 - 1 / 1.31)},
    ),
    "a loose ceiling says nothing": (
        WAITING,
        (changed(FREE_LOADER, high=9.0),),
        ("more_workers", "cheaper_sample"),
        LAWS_OWN,
    ),
    # The device works for 20 of 25 ms meanwhile.
    "nobody knows what a wait for a device costs": (
        stalling(synchronize=20, work=5, device=on_gpu(host_bound=0.0)),
        (),
        ("no_synchronize",),
        {"gain": None, "gain_upper_bound": None, "fraction": pytest.approx(0.2)},
    ),
    # What it has given back is asked for again, elsewhere in the step.
    "what gives memory back costs more than its own time": (
        stalling(empty_cache=20, work=5, device=on_gpu(host_bound=0.0, host_s=0.001)),
        (),
        ("keep_cache",),
        {"gain": pytest.approx(25 / 24), "gain_upper_bound": None},
    ),
    "nor does a set of changes": (
        UPDATING,
        (TOGETHER,),
        ("fused_optimizer",),
        {"measured_gain": None},
    ),
}


@pytest.mark.parametrize(("training", "trials", "changes", "fields"), GAINS.values(), ids=GAINS)
def test_a_finding_has_one_gain(
    training: Seen,
    trials: tuple[TrialResult, ...],
    changes: tuple[str, ...],
    fields: dict[str, object],
) -> None:
    """Its first change's, by what was measured, else by the law."""
    (finding,) = findings(training, *trials).values()
    first = finding.changes[0]

    assert tuple(change.id for change in finding.changes) == changes
    assert {name: getattr(finding, name) for name in fields} == fields
    assert (finding.advice, finding.effort) == (first.advice, first.effort)
    assert finding.gain == (first.measured.speedup if first.measured else first.about)


def test_what_was_tried_is_in_the_evidence() -> None:
    """Also what was slower; another loss is no gain."""
    own, slower = (
        findings(WAITING, trial)["data_wait"].evidence[-1] for trial in (WORKERS, SLOWER)
    )
    differs = findings(UPDATING, changed(FUSED, verdict="loss differs"))["optimizer_not_fused"]

    assert own == FASTER
    assert "2 workers was tried: slower" in slower
    assert differs.measured_gain.gains_nothing


def test_no_gain_is_above_its_bound() -> None:
    """Of every change of every finding."""
    for training in (WAITING, UPDATING, handing(2, 13, 12, 20)):
        for finding in findings(training, FREE_LOADER).values():
            for change in finding.changes:
                assert change.at_most is None or (change.about or 1.0) <= change.at_most + 1e-9


# -- what was measured ----------------------------------------------------------------------------


def test_a_finding_whose_only_change_was_refuted_is_last() -> None:
    """Though it would have saved more."""
    equal = changed(FUSED, verdict="equal", speedup=1.0, low=0.98, high=1.02)
    slots = {"forward": 40, "backward": 40, "optimizer": 20, "callbacks": 12}
    both = seen(step(*UPDATING.account.regions, **slots))

    assert [*findings(both)] == ["optimizer_not_fused", "callbacks"]
    assert [*findings(both, equal)] == ["callbacks", "optimizer_not_fused"]


def test_a_change_that_no_cause_advises_has_a_finding_of_its_own() -> None:
    """It was faster, in this training; and it leads where it gains most."""
    found = findings(WAITING, AUTOCAST, changed(WORKERS, speedup=1.1, low=1.08, high=1.12))

    assert [*found] == ["measured_change", "data_wait"]
    assert found["measured_change"].gain == 1.38
    assert found["measured_change"].action == 'precision="bf16-mixed" (Trainer(…))'


# -- one order ------------------------------------------------------------------------------------


def test_the_order_is_by_what_a_day_of_work_saves_of_the_fit() -> None:
    """Urgent first; unknown before what saves little; low and refuted last."""
    refuted = findings(UPDATING, changed(FUSED, verdict="equal", speedup=1.0, low=0.98, high=1.02))
    order = [
        of_effort("urgent", None, urgent=True),
        of_effort("minutes", 1.2),
        of_effort("hours", 1.9, "hours"),
        of_effort("severe", None, severity="high"),
        of_effort("unknown", None),
        of_effort("little", 1.02),
        of_effort("low", None, severity="low"),
        refuted["optimizer_not_fused"],
    ]

    assert [each.id for each in ranked(order[::-1])] == [each.id for each in order]


def test_a_step_counts_for_as_much_of_the_fit_as_steps_take() -> None:
    """A fifth of the fit is more than a quarter of steps that are half of it."""
    of_step, of_fit = of_effort("step", 1 / 0.75), of_effort("fit", 1.25, scope="fit")

    assert [each.id for each in ranked([of_step, of_fit], 0.5)] == ["fit", "step"]
    assert [each.id for each in ranked([of_fit, of_step], 1.0)] == ["step", "fit"]


def test_validation_that_is_half_of_the_fit_comes_before_a_wait_of_its_steps() -> None:
    """30 % of steps that are the other half."""
    account = step(
        data_wait=30,
        forward=70,
        loader=loading(0, 30),
        pauses_s={"validation": 20.0},
    )

    assert [*findings(seen(account, gaps={"validation": 20}))] == ["validation", "data_wait"]


def test_noise_makes_shares_less_sure_and_comes_last() -> None:
    """It says how far the rest is to be believed."""
    calm, noisy = spread(1.0, callbacks=8.0), spread(6.0, callbacks=8.0)

    assert [*findings(calm)] == ["callbacks"]
    assert [*findings(noisy)] == ["callbacks", "noisy_run"]
    assert findings(calm)["callbacks"].confidence == "high"
    assert findings(noisy)["callbacks"].confidence == "medium"


def test_a_finding_has_what_it_saves_of_the_fit_and_per_day() -> None:
    """A change of the step saves of the steps alone, one of pauses of the whole fit."""
    account = step(
        data_wait=30, forward=70, loader=loading(0, 30), pauses_s={"validation": 20.0}, cpus=8.0
    )
    found = findings(seen(account, gaps={"validation": 20}))

    wait, pauses = found["data_wait"], found["validation"]
    assert wait.saved_fraction == pytest.approx(0.5 * saving(wait.gain or 1.0))
    assert wait.return_per_day == pytest.approx((wait.saved_fraction or 0) / DAYS[wait.effort])
    assert pauses.saved_fraction == pytest.approx(saving(pauses.gain or 1.0))


def test_a_loader_that_sleeps_is_given_nearer_data_and_no_cheaper_sample() -> None:
    """It waits for a disk or a network; one that computes does not."""
    changes = {
        asleep: [
            change.id
            for change in findings(waits(40, 4, loading(0, 40, asleep=asleep), cpus=8.0))[
                "data_wait"
            ].changes
        ]
        for asleep in (0.9, 0.4)
    }

    assert changes == {
        0.9: ["more_workers", "nearer_data"],
        0.4: ["more_workers", "cheaper_sample"],
    }


def test_a_finding_that_only_explains_asks_for_no_decision() -> None:
    """There is nothing to decide."""
    hidden = seen(
        step(
            data_wait=25,
            forward=25,
            loader=loading(0, 25),
            device=on_gpu(data_s=0.0002, host_bound=0.0),
        )
    )
    found = findings(hidden)

    assert [*found] == ["data_hidden"]
    assert (found["data_hidden"].fraction, found["data_hidden"].gain) == (0.0, None)
    assert found["data_hidden"].return_per_day is None


# -- what nobody owns ------------------------------------------------------------------------------


ROWS = (
    region("addmm", 40, ideal=20, kind="matmul"),
    region("mm", 40, ideal=12, part="backward"),
)
"""Eighty milliseconds of computing for which a chip needs 32."""
ON_GPU = region("mm", 50)
COPIED = (region("clone", 30, ideal=10), region("mm", 70, kind="matmul", ideal=35))
PADDED = seen(
    step(*COPIED, forward=100), readings={"padding_fraction": 0.4}, documents=audit_of(*COPIED)
)


@pytest.mark.parametrize(
    ("training", "fraction", "of_light", "look"),
    [
        (seen(step(*ROWS, callbacks=20, forward=40, backward=40)), 0.8, 32 / 80, ""),
        # Of an update of 20 of 100 ms the cause is the owner, and of the rest no roofline is known.
        (UPDATING, 0.8, None, ""),
        # Copies are owned, though padding has left another object of them.
        (PADDED, 0.42, 0.5, ""),
        # What only an option would save is what the model asks for.
        (sixty(*unfused("bernoulli_")), 1.0, 41 / 60, ""),
        (seen(step(forward=50)), 1.0, None, "LoopMonitor(audit_at=20)"),
        (
            seen(step(ON_GPU, forward=50, device=on_gpu()), documents=audit_of(ON_GPU)),
            1.0,
            0.0,
            "LoopMonitor(profile=ScheduledProfile(wait=5, warmup=2, active=3, repeat=1))",
        ),
    ],
    ids=[
        "on a CPU an audit has seen all",
        "owned",
        "padded and owned",
        "an option",
        "without an audit",
        "a device without a trace",
    ],
)
def test_computing_that_nobody_claims_is_ordinary_and_has_its_speed_of_light(
    training: Seen, fraction: float, of_light: float | None, look: str
) -> None:
    """With the look that would see more, in the words of the loop."""
    _, found = diagnose(*training)

    assert found.fraction == pytest.approx(fraction)
    assert found.of_light == (None if of_light is None else pytest.approx(of_light))
    assert found.look == look


def test_without_steady_steps_nothing_is_called_ordinary() -> None:
    """Shares of nothing are none."""
    assert diagnose(*seen(step(fit_s=1.0), steps=5, steady_steps=0))[1] is None
