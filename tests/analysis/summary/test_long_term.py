"""A run that changes while it goes on: from where, in which phase, and what moved along."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import pytest
from support.runs import MS, RankSpec, end_to_end, make_info, make_run_dir, make_step

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.schema import Summary
from trainperf.core.findings import Finding
from trainperf.core.steps.records import StepRecord


STEPS = 6_000
Shape = Callable[[int], Mapping[str, float]]
"""Step to what its phases take on top, in ms."""


@end_to_end
def steps_with(
    more: Shape, *, seed: int = 0, wander: float = 0.0, facts: Callable[[int], dict] = lambda _: {}
) -> Iterator[StepRecord]:
    """50 ms with 2 % of noise per phase, on a machine that wanders."""
    draws = np.random.default_rng(seed)
    typical = {
        "data_wait": 2.0,
        "forward": 15.0,
        "backward": 28.0,
        "optimizer": 4.0,
        "callbacks": 1.0,
    }
    walk = np.exp(np.cumsum(wander / np.sqrt(STEPS) * draws.standard_normal(STEPS)))
    noise = np.exp(0.02 * draws.standard_normal((STEPS, len(typical))))
    for index in range(STEPS):
        times = {
            name: ms * walk[index] * noise[index, place]
            for place, (name, ms) in enumerate(typical.items())
        }
        for name, ms in more(index).items():
            times[name] = times.get(name, 0.0) + ms
        yield make_step(index, tags=int(index < 12), facts=facts(index), **times)


def summary_with(tmp_path: Path, *ranks: list[StepRecord]) -> Summary:
    """Of a run with these steps."""
    specs = [
        RankSpec(steps=steps, info=make_info(rank=rank, world_size=len(ranks)))
        for rank, steps in enumerate(ranks)
    ]
    return summarize(Run.open(make_run_dir(tmp_path / "run", specs)))


def finding(summary: Summary, name: str) -> Finding:
    """The one of that id."""
    (only,) = [each for each in summary.findings if each.id == name]
    return only


def test_a_slow_shard_is_a_change_of_the_data_wait(tmp_path: Path) -> None:
    """From step 4,000 on 9 ms more: named to within a piece of the run."""
    summary = summary_with(
        tmp_path, steps_with(lambda i: {"data_wait": 9.0 * (i >= 4_000)}, wander=0.03)
    )

    (level,) = summary.long_term
    assert abs(level.from_step - 4_000) <= 64
    assert (level.phase, level.until_step, level.rank) == ("data_wait", None, None)
    assert level.phase_ends_s - level.phase_begins_s == pytest.approx(0.009, rel=0.05)
    shown = finding(summary, "slower_since")
    assert re.fullmatch(
        rf"from step {level.from_step:,} on steps take 1[89] % longer: data wait, \+\d\.\d+ ms",
        shown.title,
    )
    assert "shard" in shown.action
    assert shown.fraction == pytest.approx(0.009 * 2_000 / summary.run.fit_s, rel=0.1)
    assert level.lost_s == pytest.approx(2_000 * 9 * MS / 1e9, rel=0.1)


def test_a_slow_stretch_has_an_end(tmp_path: Path) -> None:
    """Another process took processors for a third of the run: Python slowed down too."""
    slow = range(2_000, 4_000)
    summary = summary_with(
        tmp_path,
        steps_with(
            lambda i: {"forward": 4.0, "backward": 8.0, "optimizer": 1.2} if i in slow else {},
            facts=lambda i: {"pace_ns": 26_000 if i in slow else 20_000},
        ),
    )
    (level,) = summary.long_term
    assert abs(level.from_step - 2_000) <= 64
    assert abs((level.until_step or 0) - 4_000) <= 64
    assert level.alike
    assert "pace_ns" in [moved.fact for moved in level.moved]
    assert finding(summary, "slower_since").advice == "Look at the machine, not at the code"


PARTS = {"forward": 15.0, "backward": 28.0, "optimizer": 4.0, "data_wait": 2.0, "callbacks": 1.0}
"""Of a step, in ms: what a slower machine makes longer is all of them."""


@pytest.mark.parametrize(
    ("since", "says"),
    [(0, r"alike, from 50\.\d+ ms to"), (3000, r"alike, \+[56]\.\d+ ms")],
    ids=["bit by bit", "at once"],
)
def test_steps_that_get_slower_in_all_their_parts_are_the_machines(
    since: int, says: str, tmp_path: Path
) -> None:
    """No list is gone through as a whole in each of them; named is what the step takes longer."""

    def slower(index: int) -> Mapping[str, float]:
        more = float(index >= since) if since else index / STEPS
        return {name: 0.12 * ms * more for name, ms in PARTS.items()}

    shown = finding(summary_with(tmp_path, steps_with(slower)), "slower_since")

    assert re.search(f"forward, backward and optimizer {says}", shown.title)
    assert shown.advice == "Look at the machine, not at the code"
    assert "clocks" in shown.action


def test_larger_batches_are_no_fault_of_the_machine(tmp_path: Path) -> None:
    """Tokens grew with the step."""
    summary = summary_with(
        tmp_path,
        steps_with(
            lambda i: {"forward": 4.0, "backward": 8.0, "optimizer": 1.1} if i >= 3_000 else {},
            facts=lambda i: {
                "tokens_padded": 10_000 if i >= 3_000 else 8_000,
                "tokens_effective": 8_000,
            },
        ),
    )
    shown = finding(summary, "slower_since")
    assert shown.advice == "See why batches got larger"
    assert shown.action.startswith("compare the batches before and after step 3,0")


def test_a_log_file_that_is_rewritten_drifts_and_memory_grows_with_it(tmp_path: Path) -> None:
    """Lightning#17725: each write takes longer by what was added; the hook is in the totals."""
    summary = summary_with(
        tmp_path,
        steps_with(
            lambda i: {"callbacks": 30.0 * i / STEPS * 50 * (i % 50 == 0)},
            facts=lambda i: {"owned_bytes": 2e9 * (1 + i / STEPS)},
        ),
    )
    (drift,) = summary.long_term
    assert (drift.phase, drift.from_step) == ("callbacks", 0)
    assert [moved.fact for moved in drift.moved] == ["owned_bytes"]
    shown = finding(summary, "slower_since")
    assert "callbacks grows from" in shown.title
    assert "append to the log file instead of writing all of it again" in shown.action
    assert any("memory in use grew with it" in line for line in shown.evidence)


@pytest.mark.parametrize("seed", range(4))
def test_a_machine_that_wanders_gives_no_finding(tmp_path: Path, seed: int) -> None:
    """By a fifth over the run."""
    summary = summary_with(tmp_path, steps_with(lambda _: {}, seed=seed, wander=0.2))
    assert "slower_since" not in {each.id for each in summary.findings}


@pytest.mark.parametrize(
    ("more_ms", "says"),
    [
        (lambda i: 9.0 * (i >= 3_000), "data wait on rank 1"),
        (lambda i: 30.0 * i / STEPS, "data wait on rank 1 grows from"),
    ],
    ids=["at once", "bit by bit"],
)
def test_the_rank_that_slows_down_is_named(
    more_ms: Callable[[int], float], says: str, tmp_path: Path
) -> None:
    """Rank 1 loads from a slow disk; rank 0 only waits for it in backward."""
    waits = steps_with(lambda i: {"backward": more_ms(i)})
    slow = steps_with(lambda i: {"data_wait": more_ms(i)}, seed=1)
    summary = summary_with(tmp_path, waits, slow)
    (change,) = summary.long_term

    assert (change.rank, change.phase) == (1, "data_wait")
    assert says in finding(summary, "slower_since").title


@pytest.mark.parametrize(
    ("least", "most", "own"),
    [(1, 5, True), (0.7 * 50, 0.7 * 250, True), (1, 191, False)],
    ids=["a fiftieth of the step", "most of it all along", "most of what it takes longer"],
)
def test_a_longer_step_that_waits_longer_for_a_processor_is_no_fault_of_the_machine(
    least: float, most: float, *, own: bool, tmp_path: Path
) -> None:
    """It is the same share of the step: only what comes to be most of the growth explains it."""
    summary = summary_with(
        tmp_path,
        steps_with(
            lambda i: {"forward": 200.0 * i / STEPS},
            facts=lambda i: {"waited_ns": (least + (most - least) * i / STEPS) * MS},
        ),
    )
    (drift,) = summary.long_term
    shown = finding(summary, "slower_since")

    assert (drift.from_step, bool(drift.moved)) == (0, not own)
    assert shown.advice.startswith("Find what forward goes through") is own
    assert shown.action.startswith("see what else ran there over the run") is not own


def test_what_grows_with_the_square_of_the_step_is_told(tmp_path: Path) -> None:
    """Rows times columns of a table that is written anew: a line through it begins below zero."""
    summary = summary_with(tmp_path, steps_with(lambda i: {"loop": 400.0 * (i / STEPS) ** 2}))
    (drift,) = summary.long_term
    assert (drift.phase, drift.from_step) == ("loop", 0)
    assert drift.begins_s == pytest.approx(0.050, abs=0.002)
    assert drift.ends_s == pytest.approx(0.05 + 0.4 * (31 / 32) ** 2, rel=0.05)
    whole = sum(0.4 * (i / STEPS) ** 2 for i in range(STEPS))
    assert drift.lost_s == pytest.approx(whole, rel=0.05)
