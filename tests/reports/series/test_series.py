"""What the charts are given: the run's own numbers, and a reason where there are none."""

import json
from pathlib import Path
from typing import Any

import pytest
from support.cases import CASES
from support.runs import MS, RankSpec, make_info, make_run_dir, make_step, make_steps
from support.tab import a_run, steps_of

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.core.phases import PHASES, Tag
from trainperf.tensorboard.data import Store, View


def viewed(root: Path, run: str = "first/trainperf", view: View | None = None) -> dict[str, Any]:
    """What the page is given of a run."""
    return json.loads(Store([root], lambda: 0.0).run(run, view or View()).body)


def chart(answer: dict[str, Any], key: str) -> dict[str, Any]:
    """One of the small charts."""
    return next(each for each in answer["series"]["charts"] if each["key"] == key)


def line(answer: dict[str, Any], key: str, place: int = 0) -> list[float | None]:
    """Values of a line of a small chart."""
    return chart(answer, key)["lines"][place]["values"]


def test_each_step_is_drawn_as_it_was_recorded(tmp_path: Path) -> None:
    """Phase by phase, to seven digits, and the phases tile the step."""
    a_run(tmp_path)

    steps = viewed(tmp_path)["series"]["steps"]

    assert steps["width"] == 1
    assert steps["begins"] == list(range(100))
    phases = {phase["key"]: phase["mean_s"] for phase in steps["phases"]}
    assert list(phases) == [phase.label for phase in PHASES]
    assert phases["data_wait"] == [0.02] * 100
    assert phases["forward"][:4] == [0.014, 0.015, 0.016, 0.014]
    assert steps["wall_s"] == pytest.approx(
        [sum(each) for each in zip(*phases.values(), strict=True)]
    )


def test_groups_of_a_long_run_keep_the_mean_and_the_slowest_step(tmp_path: Path) -> None:
    """5,000 steps in 625 groups of eight; step 4,321 takes a second."""
    steps = steps_of(5000)
    steps[4321] = make_step(4321, start_ns=1, forward=1000)
    a_run(tmp_path, steps=steps)

    drawn = viewed(tmp_path)["series"]["steps"]

    assert (drawn["width"], len(drawn["begins"])) == (8, 625)
    place = drawn["begins"].index(4320)
    assert drawn["slowest_at"][place] == 4321
    assert drawn["slowest_s"][place] == 1.0
    others = sum(steps[4320 + n].wall_s for n in range(8) if n != 1)
    assert drawn["wall_s"][place] == pytest.approx((1.0 + others) / 8, rel=1e-6)


def test_a_window_shows_single_steps_of_a_long_run(tmp_path: Path) -> None:
    """Both ends included."""
    a_run(tmp_path, steps=steps_of(5000))

    steps = viewed(tmp_path, view=View(first=2000, last=2099))["series"]["steps"]

    assert steps["width"] == 1
    assert steps["begins"] == list(range(2000, 2100))


def test_a_window_without_a_step_has_no_breakdown(tmp_path: Path) -> None:
    """And nothing fails."""
    a_run(tmp_path)

    assert viewed(tmp_path, view=View(first=500, last=600))["series"]["steps"] is None


def test_one_long_first_step_does_not_hide_the_others(tmp_path: Path) -> None:
    """The frame holds the steady steps; the page marks what is beyond it."""
    steps = [make_step(0, tags=int(Tag.WARMUP), forward=60_000), *steps_of(99, first=1)]
    a_run(tmp_path, steps=steps)

    drawn = viewed(tmp_path)["series"]["steps"]

    assert drawn["slowest_s"][0] == 60.0
    assert drawn["frame_s"] == pytest.approx(1.08 * 0.052)


def test_a_few_very_slow_steady_steps_do_not_set_the_frame(tmp_path: Path) -> None:
    """Three times the median is the most; they are marked at its edge."""
    steps = steps_of(100)
    steps[80] = make_step(80, forward=5000)
    a_run(tmp_path, steps=steps)

    assert viewed(tmp_path)["series"]["steps"]["frame_s"] == pytest.approx(1.08 * 3 * 0.051)


def test_single_steps_of_several_ranks_are_timed_by_the_slowest(tmp_path: Path) -> None:
    """Tokens of both over 40 ms, and a tagged step lasts as long as on the slower rank."""
    facts = {"tokens_effective": 100}
    specs = [
        RankSpec(
            steps=[
                make_step(n, tags=int(Tag.GC) * (n == 5), forward=20 * (1 + rank), facts=facts)
                for n in range(20)
            ],
            info=make_info(rank=rank, world_size=2),
        )
        for rank in range(2)
    ]
    make_run_dir(tmp_path / "first" / "trainperf", specs)

    answer = viewed(tmp_path)

    tokens = chart(answer, "tokens")["lines"][0]
    assert (tokens["low"][7], tokens["high"][7], tokens["values"][7]) == (5000, 5000, 5000)
    assert answer["series"]["steps"]["tags"][0]["wall_s"] == [0.04]


def test_tagged_steps_are_there_with_the_reason(tmp_path: Path) -> None:
    """Each tag with its steps, its sentence and whether such steps are steady."""
    steps = steps_of(100)
    steps[70] = make_step(70, tags=int(Tag.OVERFLOW), forward=50)
    a_run(tmp_path, steps=steps)

    tags = {tag["key"]: tag for tag in viewed(tmp_path)["series"]["steps"]["tags"]}

    assert list(tags) == ["warmup", "after_validation", "overflow"]
    assert tags["warmup"]["at"] == list(range(12))
    assert tags["after_validation"]["at"] == [60]
    assert "validation ran just before it" in tags["after_validation"]["why"]
    assert (tags["after_validation"]["left_out"], tags["overflow"]["left_out"]) == (True, False)
    assert tags["overflow"]["wall_s"] == [0.05]


def test_every_tag_says_why(tmp_path: Path) -> None:
    """A tag that is added later needs its sentence."""
    steps = [make_step(index, tags=int(tag), forward=10) for index, tag in enumerate(Tag)]
    a_run(tmp_path, steps=steps)

    tags = viewed(tmp_path)["series"]["steps"]["tags"]

    assert [tag["key"] for tag in tags] == [tag.label for tag in Tag]
    assert all(tag["why"] for tag in tags)


def test_a_chart_of_all_steady_steps_in_one_group_shows_the_reading(tmp_path: Path) -> None:
    """Charts and report combine steps and ranks in the same way: shown on four unequal ranks."""
    specs = [
        RankSpec(
            steps=[
                make_step(
                    index,
                    data_wait=1 + rank + index % 5,
                    forward=20 + 3 * rank,
                    backward=30,
                    facts={
                        "tokens_effective": 100 + 7 * rank + index,
                        "tokens_padded": 400,
                        "samples": 4 + rank,
                        "attempts": 1,
                        "overflows": int(index % 7 == rank),
                        "loss": 2.0 + rank,
                        "tail_ns": (5 - rank) * MS,
                    },
                )
                for index in range(64)
            ],
            info=make_info(rank=rank, world_size=4),
        )
        for rank in range(4)
    ]
    directory = make_run_dir(tmp_path / "first" / "trainperf", specs)
    found = summarize(Run.open(directory)).readings

    answer = viewed(tmp_path)

    mean = {name: sum(v) / 64 for name, v in phases(answer).items()}  # type: ignore[arg-type]
    for phase in PHASES:
        assert mean[phase.label] == pytest.approx(found[f"phase_{phase.label}_s"].value, rel=1e-6)
    assert line(answer, "overflow")[-1] == pytest.approx(found["overflow_rate"].value, rel=1e-6)
    assert line(answer, "loss")[-1] == found["loss"].value
    one = only_group(directory)
    assert one["wait_fraction"] == pytest.approx(found["data_wait_fraction"].value)
    assert one["tokens_per_s"] == pytest.approx(found["effective_tokens_per_s"].value)
    assert one["samples_per_s"] == pytest.approx(found["samples_per_s"].value)


def phases(answer: dict[str, Any]) -> dict[str, list[float | None]]:
    """Mean seconds of each phase, by group."""
    return {each["key"]: each["mean_s"] for each in answer["series"]["steps"]["phases"]}


def only_group(directory: Path) -> dict[str, float | None]:
    """The charts' values when all steps are in one group."""
    from trainperf.analysis.run.job_block import JobBlock
    from trainperf.analysis.run.replay import Replay
    from trainperf.reports.series.charts import charts
    from trainperf.reports.series.columns import Groups, columns

    run = Run.open(directory)
    groups = Groups(most=1)
    for blocks in Replay(run).blocks():
        groups.observe(blocks[0].index, columns(JobBlock.of(blocks), None))
    by_key = {each.key: each for each in charts(groups, summarize(run))}
    return {
        "wait_fraction": by_key["data_wait"].lines[0].values[0],
        "tokens_per_s": by_key["tokens"].lines[0].values[0],
        "samples_per_s": by_key["samples"].lines[0].values[0],
    }


def test_the_phases_of_one_rank_can_be_asked_for(tmp_path: Path) -> None:
    """Rank 2 of this run has a slow loader, and rank 0 has not."""
    make_run_dir(tmp_path / "first" / "trainperf", CASES["straggler"]().ranks)

    second = viewed(tmp_path, view=View(rank=2))
    first = viewed(tmp_path, view=View(rank=0))

    assert phases(second)["data_wait"][20] == 0.026
    assert phases(first)["data_wait"][20] == 0.001
    assert second["series"]["steps"]["rank"] == 2


def test_the_skew_of_a_rank_is_its_wait_beyond_the_last_ones(tmp_path: Path) -> None:
    """Rank 2 comes last at the all-reduce, and the others wait 25 ms for it."""
    make_run_dir(tmp_path / "first" / "trainperf", CASES["straggler"]().ranks)

    skew = chart(viewed(tmp_path), "skew")

    assert [each["label"] for each in skew["lines"]] == ["rank 0", "rank 1", "rank 2", "rank 3"]
    assert [each["values"][100] for each in skew["lines"]] == [0.025, 0.025, 0.0, 0.025]


def test_of_many_ranks_those_that_wait_least_and_most_are_drawn(tmp_path: Path) -> None:
    """Sixteen lines cannot be told apart; which are drawn is said."""
    specs = [
        RankSpec(
            steps=make_steps(30, warmup=0, backward=40, facts={"tail_ns": (rank + 1) * MS}),
            info=make_info(rank=rank, world_size=16),
        )
        for rank in range(16)
    ]
    make_run_dir(tmp_path / "first" / "trainperf", specs)

    tail = chart(viewed(tmp_path), "tail")

    ranks = (0, 1, 2, 3, 12, 13, 14, 15)
    assert [each["label"] for each in tail["lines"]] == [f"rank {rank}" for rank in ranks]
    assert tail["note"] == "8 of 16 ranks: those that wait least and most"


def test_what_does_not_apply_has_a_reason_and_no_line(tmp_path: Path) -> None:
    """Never a line of zeros."""
    reasons = {
        "tail_ns": "not applicable: one rank reduces nothing",
        "attempts": "not applicable: bf16-mixed uses no GradScaler",
    }
    spec = RankSpec(steps=make_steps(30, forward=10), info=make_info(reasons=reasons))
    make_run_dir(tmp_path / "first" / "trainperf", [spec])

    answer = viewed(tmp_path)

    absent = {each["key"]: each["absent"] for each in answer["series"]["charts"]}
    assert absent["overflow"] == "not applicable: bf16-mixed uses no GradScaler"
    assert absent["tail"] == "not applicable: one rank reduces nothing"
    assert absent["device"] == "not applicable (CPU): host and device are the same"
    assert absent["data_wait"] is None
    for each in answer["series"]["charts"]:
        assert bool(each["lines"]) == (each["absent"] is None)


def test_the_device_has_lines_of_its_own(tmp_path: Path) -> None:
    """What was not measured there is said beside them."""
    make_run_dir(tmp_path / "first" / "trainperf", CASES["hidden_wait"]().ranks)

    answer = viewed(tmp_path)

    device = chart(answer, "device")
    assert [each["key"] for each in device["lines"]] == ["data_stall_ns", "h2d_device_ns"]
    assert device["lines"][1]["values"][50] == 0.0007
    assert device["note"].startswith("all-reduce tail: ")
    wait = chart(answer, "data_wait")["lines"]
    assert [each["values"][50] for each in wait] == pytest.approx([60 / 99, 0.06 / 99], rel=1e-6)


def test_a_missing_value_is_null(tmp_path: Path) -> None:
    """NaN is no JSON, and 0 would be a measurement."""
    steps = steps_of(40)
    steps[20] = make_step(20, forward=30)
    a_run(tmp_path, steps=steps)

    loss = line(viewed(tmp_path), "loss")

    assert loss[20] is None
    assert loss[21] == 4.0 - 21 / 1000
