"""The sentences of a comparison that must be read before its verdict is believed."""

import msgspec
import pytest

from trainperf.analysis.summary.loss_parity import Parity
from trainperf.comparison.results import (
    ClockChange,
    Comparison,
    FirstSteps,
    Noise,
    ProofFacts,
    ReadingChange,
    Side,
    Speedup,
    TraceDifference,
)
from trainperf.core.stats.bootstrap import Source
from trainperf.reports.comparison import answer, explained, notes, speed


def comparison(noise: Noise, *, runs: int = 1) -> Comparison:
    """A step that takes ten times as long, in so many runs on either side."""
    before, after = (
        Side(name=name, paths=(name,) * runs, steady_steps=500, world_size=1) for name in "ab"
    )
    return Comparison(
        before=before,
        after=after,
        verdict="undecided",
        reason="a step is the same work in both",
        primary="step_s",
        speedup=Speedup(value=0.1, low=0.05, high=1.2, per_rank=False),
        noise=noise,
        parity=Parity(verdict="unknown", why="nothing was counted"),
    )


@pytest.mark.parametrize(
    ("source", "runs", "said"),
    [
        ("assumed", 1, "one run each: run-to-run noise 8.0 %, assumed; "),
        (
            "drift",
            1,
            "one run each: run-to-run noise 8.0 %, expected: the machine was busy or uneven; ",
        ),
        ("turns", 3, "run-to-run noise 8.0 %, measured on repeats (6 runs, in turns); "),
        ("repeats", 3, "run-to-run noise 8.0 %, measured on repeats (6 runs, not in turns); "),
    ],
)
def test_the_noise_is_said_with_where_it_comes_from(source: Source, runs: int, said: str) -> None:
    """And with the smallest change that could be told from it."""
    noise = Noise(relative=0.08, assumed=runs == 1, source=source, resolution=0.25)
    note = notes(comparison(noise, runs=runs))[2]

    assert note.startswith(f"{said}a change below 25 % cannot be resolved")
    assert note.endswith("repeat both to measure the noise") == (runs == 1)


def test_a_proof_gives_one_figure_of_noise_and_no_advice_that_it_follows_itself() -> None:
    """It repeats both by itself until that shows, in turns."""
    noise = Noise(relative=0.025, assumed=True, source="assumed", resolution=0.3)
    proof = ProofFacts(pairs=1, most_pairs=10, ended_by="decided", ended_early=True, took_s=20.0)
    note = notes(msgspec.structs.replace(comparison(noise), proof=proof))[1]

    assert note == (
        "1 pair, too few to show run-to-run noise: 2.5 % is assumed; a change below 30 % cannot be "
        "resolved"
    )


@pytest.mark.parametrize(("apart_s", "said"), [(None, False), (60.0, False), (7200.0, True)])
def test_runs_that_lie_far_apart_are_said_to(apart_s: float | None, *, said: bool) -> None:
    """Nothing inside either shows what the machine did between them."""
    noise = Noise(relative=0.02, assumed=True, source="assumed", resolution=0.06, apart_s=apart_s)
    note = notes(comparison(noise))[2]

    assert note.startswith("one run each, 2.00 h apart: run-to-run noise 2.0 %") == said
    assert ("repeat both, in turns: a machine whose speed changed" in note) == said


def test_what_took_less_than_is_known_is_said_so() -> None:
    """An operator that is not among the top ones of the trace before; kernels have a table."""
    operator = TraceDifference(
        kind="operator", name="aten::mm", before_s=0.001, after_s=0.003, below="before"
    )
    kernel = TraceDifference(kind="kernel", name="gemm", before_s=0.003, after_s=0.001)
    operators, kernels = explained((kernel, operator))

    assert operators.rows == (("aten::mm", "< 1.00 ms", "3.00 ms", "> +2.00 ms"),)
    assert (kernels.title, kernels.rows) == (
        "kernels, per step",
        (("gemm", "3.00 ms", "1.00 ms", "−2.00 ms"),),
    )


@pytest.mark.parametrize(
    ("first", "limit"),
    [
        (FirstSteps(steps=160), ""),
        (FirstSteps(steps=160, period=500), "every 500 steps, were not reached: the whole fit may"),
        (FirstSteps(steps=160, period=90), "every 90 steps, came only once: the whole fit may"),
    ],
)
def test_a_verdict_of_the_first_steps_says_so(first: FirstSteps, limit: str) -> None:
    """And what is known to come back, and is not in them twice."""
    noise = Noise(relative=0.02, assumed=True, source="assumed", resolution=0.06)
    gain = Speedup(value=1.0, low=0.99, high=1.01, per_rank=False)
    clock = ClockChange(clock="fit", reading="fit_step_s", verdict="equal", speedup=gain)
    equal = msgspec.structs.replace(
        comparison(noise), verdict="equal", primary="fit_step_s", clocks=(clock,), first_steps=first
    )

    assert answer(equal).startswith(
        "b against a over the first 160 steps: equal (within 2.0 %), the fit of these steps 1.00×"
    )
    assert limit in answer(equal)
    assert ("Epochs, validation or checkpoints" in answer(equal)) == bool(limit)


@pytest.mark.parametrize(("first_step_s", "told"), [(4.0, True), (2.0, False)])
def test_a_first_step_that_outweighs_an_epoch_is_pointed_out(
    first_step_s: float, *, told: bool
) -> None:
    """Workers that restart at every epoch take it back: 6 ms gained 500 times is 3 s."""
    noise = Noise(relative=0.02, assumed=True, source="assumed", resolution=0.06)
    gain = Speedup(value=1.4, low=1.3, high=1.5, per_rank=False)
    clock = ClockChange(clock="steady step", reading="step_s", verdict="faster", speedup=gain)
    readings = (
        ReadingChange(name="step_s", unit="s", before=0.020, after=0.014),
        ReadingChange(name="first_step_s", unit="s", before=0.03, after=first_step_s),
    )
    faster = msgspec.structs.replace(
        comparison(noise),
        verdict="faster",
        clocks=(clock,),
        first_steps=FirstSteps(steps=160, period=500),
        readings=readings,
    )

    assert ("The first step took 3.97 s longer" in answer(faster)) == told


def test_an_interval_that_means_nothing_has_no_numbers() -> None:
    """A quarter faster and a quarter slower are both possible."""
    unresolved = Speedup(value=1.17, low=0.675, high=2.03, per_rank=False)
    resolved = Speedup(value=1.83, low=1.7, high=1.9, per_rank=False)

    assert "2.03" not in speed(unresolved)
    assert "1.17" not in speed(unresolved)
    assert speed(resolved) == "1.83× as fast (95 % CI 1.7–1.9)"


@pytest.mark.parametrize(
    ("coarse", "begins"),
    [("", None), ("a", "a was recorded from outside"), ("ab", "both were recorded from outside")],
)
def test_a_data_wait_recorded_from_outside_is_called_coarse(
    coarse: str, begins: str | None
) -> None:
    """On the side that it is, or on both."""
    whole = comparison(Noise(relative=0.1, assumed=True, source="assumed", resolution=0.2))
    before, after = (
        msgspec.structs.replace(side, coarse=side.name in coarse)
        for side in (whole.before, whole.after)
    )
    shown = notes(msgspec.structs.replace(whole, before=before, after=after))

    mentions = [note for note in shown if "recorded from outside" in note]
    assert len(mentions) == int(begins is not None)
    assert all(note.startswith(str(begins)) for note in mentions)
