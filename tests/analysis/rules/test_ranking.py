"""Which finding comes first, and how sure is it?"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from support.runs import WARMUP_STEPS, RankSpec, make_info, make_step, summary_of

from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import Finding
from trainperf.core.phases import Tag


HOST_BOUND = {"lead_forward": 0, "lead_backward": 0, "data_stall_ns": 0}
"""The device had caught up in every step: a finding of medium severity without a bound."""


def run(
    path: Path, facts: Mapping[str, float], lengths_ms: Sequence[float] = (20.0,), **more_ms: float
) -> Summary:
    """Two hundred steps on a GPU that take these lengths in turn, and more in each."""
    steps = [
        make_step(
            index,
            tags=int(Tag.WARMUP) if index < WARMUP_STEPS else 0,
            facts=facts,
            forward=lengths_ms[index % len(lengths_ms)],
            **more_ms,
        )
        for index in range(200)
    ]
    return summary_of(path, [RankSpec(steps=steps, info=make_info(device="cuda"))])


def order(summary: Summary) -> list[str]:
    """Their names, the first one first."""
    return [finding.id for finding in summary.findings]


def callbacks(summary: Summary) -> Finding:
    """The one about callbacks."""
    return next(finding for finding in summary.findings if finding.id == "callbacks")


def test_what_has_no_bound_comes_before_what_gains_little(tmp_path: Path) -> None:
    """4 % of our own cost are not what to do first while the device waits for the host."""
    summary = run(tmp_path, {**HOST_BOUND, "overhead_ns": 800_000})

    assert order(summary) == ["host_bound", "own_cost"]


def test_what_has_no_bound_comes_after_what_gains_a_tenth(tmp_path: Path) -> None:
    """12 % in callbacks are known to be there to gain."""
    summary = run(tmp_path, HOST_BOUND, callbacks=2.75)

    assert order(summary) == ["callbacks", "host_bound"]


def test_noise_comes_last_and_makes_the_others_less_sure(tmp_path: Path) -> None:
    """Nobody can act on it; what it says is how far the rest is to be believed."""
    calm = run(tmp_path / "calm", {}, callbacks=4.0)
    noisy = run(tmp_path / "noisy", {}, (12.0, 16.0, 20.0, 24.0, 28.0), callbacks=4.0)

    assert order(calm) == ["callbacks"]
    assert order(noisy) == ["callbacks", "noisy_run"]
    assert (callbacks(calm).confidence, callbacks(noisy).confidence) == ("high", "medium")


def test_noise_comes_first_where_there_is_nothing_else(tmp_path: Path) -> None:
    """Then it is what there is to say."""
    assert order(run(tmp_path, {}, (12.0, 16.0, 20.0, 24.0, 28.0))) == ["noisy_run"]


def test_a_step_that_never_settled_comes_after_what_is_known_to_gain_something(
    tmp_path: Path,
) -> None:
    """Collections that take 4 % of the fit can be acted on, whatever else changes."""
    paused = {"gc_ns": 0.04 * 20e6}
    steps = [
        make_step(index, tags=int(Tag.WARMUP), facts=paused, forward=20) for index in range(90)
    ]

    assert order(summary_of(tmp_path, [RankSpec(steps=steps)])) == ["garbage", "no_steady_state"]
