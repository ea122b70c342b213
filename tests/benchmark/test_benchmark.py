"""Durations, results and verdicts of steps whose truth is planted."""

import gc
import random
import time
from collections.abc import Callable

import numpy as np
import pytest
import torch

from trainperf.benchmark import (
    BenchmarkComparison,
    PeakMemory,
    StepBenchmark,
    benchmark_step,
    compare,
)
from trainperf.benchmark.calls import peak_memory, result_of, seconds_of
from trainperf.benchmark.steps import Versus, ratio_interval, verdict_of
from trainperf.core.errors import ConfigError


def constant(value: float) -> Callable[[object], torch.Tensor]:
    """A step whose loss is *value*."""
    return lambda batch: torch.tensor(value)


def test_the_first_calls_stand_apart_from_those_that_count() -> None:
    """Cold is the first call, the warm-up includes it, and repeat calls are timed after it."""
    called: list[object] = []

    measured = benchmark_step(called.append, "batch", warmup=3, repeat=7)

    assert len(measured.warmup_s) == 3
    assert len(measured.steady_s) == 7
    assert called == ["batch"] * (3 + 7 + 1)  # the last call is the one whose memory is looked at


def test_a_duration_is_the_mean_of_the_calls_between_two_readings() -> None:
    """Four calls that take two seconds each on the clock take two seconds each."""
    now = [0.0]

    def call() -> None:
        now[0] += 2.0

    assert seconds_of(call, 4, lambda: now[0]) == 2.0


def test_a_call_shorter_than_the_clock_can_tell_says_so() -> None:
    """Doing nothing takes less than 0.1 ms; a hundred thousand times nothing does not."""
    nothing = constant(0.0)

    assert any("short" in warning for warning in benchmark_step(nothing, None).warnings)
    many = benchmark_step(nothing, None, 1, 6, calls=1000)
    assert not any("short" in warning for warning in many.warnings)


def test_the_collector_is_off_while_timing_and_on_again_after_it() -> None:
    """A pause of the collector is not the step's time."""
    seen: list[bool] = []

    benchmark_step(lambda batch: seen.append(gc.isenabled()), None, 1, 6)

    assert seen == [False] * 7 + [True]
    assert gc.isenabled()


def test_a_benchmark_leaves_the_random_state_as_it_was() -> None:
    """The seed of the first call is nobody else's, whichever generator it is of."""

    def drawn() -> tuple[float, ...]:
        return torch.rand(1).item(), random.random(), np.random.rand()  # noqa: S311, NPY002

    states = torch.get_rng_state(), random.getstate(), np.random.get_state()  # noqa: NPY002
    expected = drawn()
    torch.set_rng_state(states[0])
    random.setstate(states[1])
    np.random.set_state(states[2])  # noqa: NPY002

    benchmark_step(lambda batch: None, None, 1, 6)

    assert drawn() == expected


def test_the_faster_step_is_called_faster_and_the_slower_one_slower() -> None:
    """One sleeps 2 ms, one 30 ms; both return the same."""
    slow = ("slow", lambda batch: time.sleep(0.030) or torch.tensor(1.0))
    quick = ("quick", lambda batch: time.sleep(0.002) or torch.tensor(1.0))

    assert compare(dict([slow, quick]), None, 1, 10).versus[0].verdict == "faster"
    assert compare(dict([quick, slow]), None, 1, 10).versus[0].verdict == "slower"


def test_a_step_that_computes_something_else_is_not_called_faster() -> None:
    """The loss is 3 % off, the tolerance 1 %."""
    fns = {
        "right": lambda batch: time.sleep(0.005) or torch.tensor(1.0),
        "wrong": constant(1.03),
    }

    found = compare(fns, None, 1, 6).versus[0]

    assert found.verdict == "loss differs"
    assert found.difference == pytest.approx(0.03 / 1.03)


def test_steps_that_part_after_the_first_update_are_seen() -> None:
    """The first loss is from before any update: another learning rate shows in the last one."""

    def descent(rate: float) -> Callable[[object], torch.Tensor]:
        weight = torch.tensor(1.0)

        def step(batch: object) -> torch.Tensor:
            loss = weight.square()
            weight.sub_(rate * 2 * weight)
            return loss

        return step

    found = compare({"a": descent(0.25), "b": descent(0.125)}, None, 2, 6)

    assert found.versus[0].verdict == "loss differs"
    assert found.versus[0].difference == 0.3125 / 0.5625


def test_the_same_seed_makes_dropout_the_same_in_every_candidate() -> None:
    """Two steps that drop at random agree to the last bit."""

    def step(batch: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(batch, 0.5).sum()

    found = compare({"a": step, "b": step}, torch.rand(100), 2, 6)

    assert found.versus[0].difference == 0.0
    assert "equal results" in str(found)


def test_a_loss_that_is_not_finite_agrees_with_nothing() -> None:
    """Not even with another NaN; and no infinity reaches the result."""
    found = compare({"a": constant(float("nan")), "b": constant(float("nan"))}, None, 1, 6)

    assert (found.versus[0].verdict, found.versus[0].difference) == ("loss differs", None)
    assert "not finite" in str(found)


def test_inference_functions_are_compared_by_their_outputs() -> None:
    """A wrong element of the output is a difference; another shape is not comparable."""
    fns = {
        "right": lambda batch: batch,
        "off": lambda batch: batch + torch.tensor([0.0, 0.5]),
        "short": lambda batch: batch[:1],
        "silent": lambda batch: None,
    }

    found = compare(fns, torch.tensor([1.0, 2.0]), 1, 6).versus

    assert [each.verdict for each in found] == ["loss differs", "not comparable", "not comparable"]
    assert found[0].difference == pytest.approx(0.2)


@pytest.mark.parametrize(
    ("returned", "result"),
    [
        (torch.tensor(2.5), 2.5),
        (2.5, 2.5),
        ({"loss": torch.tensor(2.5), "logits": torch.zeros(3)}, 2.5),
        ((torch.tensor([2.5]), torch.zeros(3)), 2.5),
        # An output is no loss.
        (torch.zeros(3), [0.0, 0.0, 0.0]),
        # A step that returns nothing has no loss, rather than zero.
        *((nothing, None) for nothing in (None, "text", [], True)),
    ],
)
def test_the_loss_is_found_where_steps_return_it(returned: object, result: object) -> None:
    """A scalar, a number, the entry `loss`, the first of a tuple."""
    found = result_of(returned)

    assert (found if found is None else found.tolist()) == result


def test_the_interval_is_that_of_order_statistics() -> None:
    """Of ten values the second and the ninth enclose it with 97.9 %; five enclose nothing."""
    assert ratio_interval([float(n) for n in range(1, 11)]) == (5.5, 2.0, 9.0)
    assert ratio_interval([1.0, 2.0, 3.0, 4.0, 5.0]) == (3.0, None, None)
    assert ratio_interval([1.0, 2.0, 3.0, 4.0, 5.0, 6.0]) == (3.5, 1.0, 6.0)


@pytest.mark.parametrize(
    ("low", "high", "verdict"),
    [
        (1.01, 1.2, "faster"),
        (0.8, 0.99, "slower"),
        (0.99, 1.01, "equal"),
        (1.001, 1.01, "equal"),
        (0.9, 1.1, "undecided"),
        (1.0, 1.2, "undecided"),
        (None, None, "undecided"),
    ],
)
def test_an_interval_around_one_decides_only_within_the_margin(
    low: float | None, high: float | None, verdict: str
) -> None:
    """Faster and slower need the whole interval on one side, equal all of it within 2 %."""
    assert verdict_of(low, high, comparable=True, same=True) == verdict


def test_memory_that_the_call_takes_is_seen() -> None:
    """A quarter of a GiB, written to and held for 60 ms, is in the peak."""
    taken = 256 << 20

    def hungry() -> None:
        held = torch.ones(taken // 4)
        time.sleep(0.06)
        del held

    memory = peak_memory(hungry)

    assert 0.98 * taken < memory.above_start_bytes < 1.5 * taken
    assert memory.peak_bytes > memory.above_start_bytes


@pytest.mark.parametrize(
    ("measure", "said"),
    [
        (lambda: benchmark_step(constant(0.0), None, 0, 30), "warmup=0"),
        (lambda: benchmark_step(constant(0.0), None, 1, 5), "repeat=5"),
        (lambda: benchmark_step(constant(0.0), None, 1, 30, 0), "calls=0"),
        # One function alone is not compared.
        (lambda: compare({"only": constant(0.0)}, None), "benchmark_step"),
    ],
)
def test_what_measures_nothing_is_refused(measure: Callable[[], object], said: str) -> None:
    """With the value and the remedy."""
    with pytest.raises(ConfigError, match=said):
        measure()


def made(name: str, median_s: float) -> StepBenchmark:
    """A result as it would be measured."""
    return StepBenchmark(
        name=name,
        warmup_s=(0.41,),
        steady_s=(median_s,) * 30,
        median_s=median_s,
        iqr_s=median_s / 50,
        calls=1,
        memory=PeakMemory(source="resident set", peak_bytes=3 << 30, above_start_bytes=1 << 30),
    )


def test_a_comparison_reads_as_a_table_and_a_sentence() -> None:
    """Every number with its unit, the verdict with its interval."""
    versus = Versus(
        name="b",
        baseline="a",
        speedup=1.25,
        low=1.23,
        high=1.27,
        difference=0.1,
        verdict="faster",
    )
    found = BenchmarkComparison(
        steps=(made("a", 0.05), made("b", 0.04)), versus=(versus,), tolerance=1
    )

    assert str(found).splitlines() == [
        "b against a: faster, 1.25× the speed [1.23–1.27]; results differ by 0.1 (tolerance 1)",
        "",
        "    median     IQR  calls    cold  peak memory",
        "a  50.0 ms  1.0 ms     30  410 ms     3.00 GiB",
        "b  40.0 ms  0.8 ms     30  410 ms     3.00 GiB",
        "",
        "Peak memory: resident set, one call after the timed ones.",
    ]
