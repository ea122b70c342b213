"""Changes planted in the steps or between them, the clock that shows them, and the gate."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec
import pytest
from support.runs import RankSpec, make_gap, make_info, make_run_dir, make_step

from trainperf.analysis.run.directory import Run
from trainperf.comparison.clocks import gate, headline, reconciled
from trainperf.comparison.compare import Method, compare
from trainperf.comparison.compared_run import ComparedRun, read_run
from trainperf.comparison.results import Clock, ClockChange, Comparison, FirstSteps, Speedup
from trainperf.core.phases import Gap, Tag
from trainperf.core.readings import SAMPLES_PER_S
from trainperf.core.stats.verdict import SpeedVerdict
from trainperf.core.steps.records import GapRecord, StepRecord


QUIET = 0.002
"""Noise from run to run that is assumed here: the runs are planted."""


def run_of(path: Path, steps: Sequence[StepRecord], gaps: Sequence[GapRecord] = ()) -> ComparedRun:
    """One run of these, read back."""
    spec = RankSpec(steps=steps, gaps=gaps, info=make_info())
    return read_run(Run.open(make_run_dir(path / "trainperf", [spec])))


def planted(
    path: Path, step_ms: float = 10.0, *, pause_ms: float = 0.0, late_ms: float = 0.0
) -> ComparedRun:
    """Steps of so long, a validation every 20 steps, every fifth step late for so long."""
    steps = [
        make_step(
            index,
            tags=int(Tag.WARMUP) if index < 12 else 0,
            facts={"samples": 8},
            forward=step_ms,
            data_wait=late_ms if index % 5 == 0 else 0.0,
        )
        for index in range(412)
    ]
    gaps = [make_gap(Gap.VALIDATION, pause_ms, after_step=index) for index in range(31, 412, 20)]
    return run_of(path, steps, gaps if pause_ms else ())


def changed(tmp_path: Path, before: Mapping[str, float], after: Mapping[str, float]) -> Comparison:
    """One run with the first settings against one with the second."""
    sides = [[planted(tmp_path / name, **what)] for name, what in (("a", before), ("b", after))]
    return compare(*sides, method=Method(noise=QUIET))


@pytest.mark.parametrize(
    ("before", "after", "fit", "step", "headline", "speedup"),
    [
        ({"pause_ms": 100}, {}, "faster", "equal", "fit", 1.5),
        # The median does not see that every fifth step waits four times as long as it works.
        ({"late_ms": 40}, {}, "faster", "equal", "fit", 1.8),
        ({"pause_ms": 100}, {"step_ms": 5, "pause_ms": 100}, "faster", "faster", "fit", 1.5),
        # Noise hides what steps gain of a fit of which validation is most.
        (
            {"pause_ms": 8000},
            {"step_ms": 8, "pause_ms": 8000},
            "equal",
            "faster",
            "steady step",
            1.25,
        ),
        ({"pause_ms": 100}, {"pause_ms": 100}, "equal", "equal", "fit", 1.0),
    ],
    ids=[
        "a change between the steps",
        "late steps that are few",
        "a median that gains more than the work",
        "a change that the fit does not show",
        "what is equal",
    ],
)
def test_the_clock_that_a_change_moved_is_the_headline(
    before: Mapping[str, float],
    after: Mapping[str, float],
    fit: str,
    step: str,
    headline: str,
    speedup: float,
    tmp_path: Path,
) -> None:
    """The fit first."""
    comparison = changed(tmp_path, before, after)

    assert [(clock.clock, clock.verdict) for clock in comparison.clocks] == [
        ("fit", fit),
        ("steady step", step),
    ]
    assert comparison.headline.clock == headline
    assert comparison.headline.speedup == comparison.speedup
    assert comparison.headline.speedup.value == pytest.approx(speedup, rel=0.002)
    assert comparison.verdict == ("faster" if "faster" in (fit, step) else "equal")


def test_of_first_steps_the_steady_step_is_the_headline(tmp_path: Path) -> None:
    """Both are faster, and what comes back less often may cost what the steps gain."""
    sides = [[planted(tmp_path / name, step_ms)] for name, step_ms in (("a", 10), ("b", 7))]

    whole = compare(*sides, method=Method(noise=QUIET))
    first = compare(
        *sides, method=Method(noise=QUIET, first_steps=FirstSteps(steps=412, period=500))
    )

    assert [clock.verdict for clock in first.clocks] == ["faster", "faster"]
    assert (whole.primary, first.primary) == ("fit_step_s", "step_s")


@pytest.mark.parametrize(
    ("after", "noise", "limit", "outcome"),
    [
        ({"step_ms": 10}, QUIET, 0.05, "pass"),
        ({"step_ms": 10.2}, QUIET, 0.05, "pass"),
        ({"step_ms": 12}, QUIET, 0.05, "regression"),
        ({"pause_ms": 100}, QUIET, 0.05, "regression"),
        ({"step_ms": 10}, 0.05, 0.05, "undecided"),
        ({"step_ms": 8}, 0.05, 0.05, "pass"),
        ({"step_ms": 10.4}, 0.01, 0.05, "undecided"),
    ],
)
def test_the_gate_passes_only_what_it_excludes(
    after: Mapping[str, float], noise: float, limit: float, outcome: str, tmp_path: Path
) -> None:
    """A slowdown beyond the limit is shown, excluded or neither, by either clock."""
    sides = [[planted(tmp_path / name, **what)] for name, what in (("a", {}), ("b", after))]

    assert gate(compare(*sides, method=Method(noise=noise)), limit) == outcome


def test_a_run_that_is_no_repeat_is_refused(tmp_path: Path) -> None:
    """The second run of a side computes twice as many samples per step."""
    usual = planted(tmp_path / "a")
    double = [make_step(index, facts={"samples": 16}, forward=10.0) for index in range(412)]
    comparison = compare([usual, run_of(tmp_path / "b", double)], [usual, usual])

    assert comparison.verdict == "not comparable"
    assert "is not a repeat" in comparison.reason


def test_a_repeat_of_packed_texts_has_more_or_fewer_rows_by_chance(tmp_path: Path) -> None:
    """Of 32 steady steps some have three rows: a sixth of them here, a third there."""

    def packed(name: str, every: int) -> ComparedRun:
        steps = [
            make_step(
                index,
                tags=int(Tag.WARMUP) if index < 12 else 0,
                facts={"samples": 3 if index % every == 0 else 2},
                forward=10.0,
            )
            for index in range(44)
        ]
        return run_of(tmp_path / name, steps)

    runs = [packed("a", 6), packed("b", 3)]
    rows = [run.summary.value(SAMPLES_PER_S) or 0.0 for run in runs]

    assert rows[1] / rows[0] > 1.05
    assert compare(runs, runs).verdict != "not comparable"


def test_a_repeat_that_counted_nothing_is_no_crash(tmp_path: Path) -> None:
    """It was killed in its warm-up: then there is nothing to compare, and why is said."""
    usual = planted(tmp_path / "a")
    steps = [make_step(index, tags=int(Tag.WARMUP), forward=10.0) for index in range(9)]
    killed = run_of(tmp_path / "b", steps)

    for sides in (([usual, killed], [usual, usual]), ([usual, usual], [usual, killed])):
        assert compare(*sides).verdict == "not comparable"


def test_a_clock_that_is_not_believed_stops_no_gate(tmp_path: Path) -> None:
    """The fit is slower by its whole interval, and the steady step leaves room for it."""
    comparison = changed(tmp_path, {}, {"step_ms": 12})
    doubted = msgspec.structs.replace(
        comparison,
        clocks=reconciled(
            clock_changes(("fit", "slower", 0.9), ("steady step", "undecided", 0.94), within=1.08)
        ),
    )

    assert gate(comparison, 0.05) == "regression"
    assert gate(doubted, 0.05) == "undecided"


def clock_changes(
    *clocks: tuple[Clock, SpeedVerdict, float], within: float = 1.1
) -> list[ClockChange]:
    """Clocks, what they say, and their speedups, each in an interval around it."""
    return [
        ClockChange(
            clock=clock,
            reading={"fit": "fit_step_s", "steady step": "step_s"}[clock],
            verdict=verdict,
            speedup=Speedup(value=value, low=value / within, high=value * within, per_rank=False),
        )
        for clock, verdict, value in clocks
    ]


@pytest.mark.parametrize(
    ("clocks", "believed"),
    [
        # A mean of equal steps is disturbed more easily than the fast ones among them.
        (
            [("fit", "faster", 1.14), ("steady step", "undecided", 1.08)],
            ["undecided", "undecided"],
        ),
        # By what is not in the steady step the fit moves alone.
        ([("fit", "faster", 1.5), ("steady step", "undecided", 1.02)], ["faster", "undecided"]),
        # A mean that was disturbed says faster, the fast steps slower.
        ([("fit", "faster", 2.7), ("steady step", "slower", 0.85)], ["undecided", "undecided"]),
        ([("fit", "faster", 2.7)], ["faster"]),
    ],
)
def test_clocks_of_single_runs_are_believed_where_they_agree(
    clocks: list[tuple[Clock, SpeedVerdict, float]], believed: list[str]
) -> None:
    """Of first steps the steady step leads only where the fit went the same way."""
    assert [clock.verdict for clock in reconciled(clock_changes(*clocks))] == believed
    apart = clock_changes(("fit", "slower", 0.8), ("steady step", "faster", 1.3))
    assert headline(apart, whole=False)[0] == "slower"
