"""Two runs with planted differences, and what is said of them."""

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from support.runs import RankSpec, end_to_end, make_info, make_run_dir, make_step

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summary.schema import HostShare
from trainperf.comparison.compare import compare
from trainperf.comparison.compared_run import ComparedRun, read_run
from trainperf.comparison.results import Comparison
from trainperf.core.phases import Tag
from trainperf.core.steps.records import Scalar, StepRecord


CONFIG: Mapping[str, Scalar] = {
    "model": "GPT2",
    "parameters": 1000,
    "dataset": "Documents",
    "batch_size": 8,
    "accumulate_grad_batches": 1,
}
HARDWARE: Mapping[str, Scalar] = {"device_name": "a chip", "cpu_count": 8}


@end_to_end
def steps(
    milliseconds: float,
    *,
    seed: int = 0,
    number: int = 400,
    tokens: int | None = 1000,
    padded: int | None = None,
    loss: float = 2.0,
) -> Iterator[StepRecord]:
    """Steps that scatter by 2 %, of which the first twelve are warm-up."""
    scatter = random.Random(seed)  # noqa: S311 noise, no secret
    for index in range(number):
        ms = milliseconds * scatter.gauss(1.0, 0.02)
        facts: dict[str, int | float | None] = {
            "loss": loss * scatter.gauss(1.0, 0.01),
            "samples": 8,
        }
        if tokens is not None:
            facts.update({"tokens_effective": tokens, "tokens_padded": padded or tokens})
        yield make_step(
            index,
            tags=int(Tag.WARMUP) if index < 12 else 0,
            facts=facts,
            forward=ms * 0.4,
            backward=ms * 0.6,
        )


def run(
    path: Path,
    records: list[StepRecord],
    *,
    config: Mapping[str, Scalar] | None = None,
    hardware: Mapping[str, Scalar] | None = None,
    world: int = 1,
) -> ComparedRun:
    """A run on disk, read back."""
    specs = [
        RankSpec(
            steps=records,
            info=make_info(
                rank=rank,
                world_size=world,
                config={**CONFIG, **(config or {})},
                hardware=hardware or HARDWARE,
            ),
        )
        for rank in range(world)
    ]
    return read_run(Run.open(make_run_dir(path / "trainperf", specs)))


def began(made: ComparedRun, at: str, **facts: object) -> ComparedRun:
    """The same run, started at that time of day, with other facts of its summary."""
    started = msgspec.structs.replace(made.summary.run, started_at=f"2026-11-01T{at}+00:00")
    return replace(made, summary=msgspec.structs.replace(made.summary, run=started, **facts))


def compared(tmp_path: Path, before: list[StepRecord], after: list[StepRecord]) -> Comparison:
    """Two single runs of one configuration."""
    return compare([run(tmp_path / "a", before)], [run(tmp_path / "b", after)])


@pytest.mark.parametrize(
    ("before", "after", "verdict", "primary", "speedup"),
    [
        ({}, {"milliseconds": 8}, "faster", "fit_step_s", 1.25),
        ({"milliseconds": 8}, {}, "slower", "fit_step_s", 0.8),
        # Nobody knows what the same run would differ from itself, and that is said.
        ({}, {"milliseconds": 9.8}, "undecided", "fit_step_s", 1.02),
        # Twice the step for three times the tokens.
        (
            {},
            {"milliseconds": 20, "tokens": 3000},
            "faster",
            "fit_effective_tokens_per_s",
            1.5,
        ),
        # Twice as many tokens a second, all of them padding, is no gain.
        ({"padded": 1000}, {"padded": 2000}, "undecided", "fit_step_s", 1.0),
    ],
)
def test_single_runs_are_judged_and_sized(
    before: Mapping[str, float],
    after: Mapping[str, float],
    verdict: str,
    primary: str,
    speedup: float,
    tmp_path: Path,
) -> None:
    """The interval holds what was planted; 2 % from run to run hide changes of less than 6 %."""
    usual = {"milliseconds": 10.0}
    found = compared(tmp_path, steps(**usual | before), steps(**usual | after, seed=1))

    assert (found.verdict, found.primary) == (verdict, primary)
    assert found.speedup.value == pytest.approx(speedup, rel=0.01)
    assert found.speedup.low < speedup < found.speedup.high
    assert (found.noise.assumed, found.noise.source) == (True, "assumed")
    assert 0.05 < found.noise.resolution < 0.08
    if verdict == "slower":  # the same way round for every reading that is a time or a rate
        said = {change.name: change.verdict for change in found.readings if change.verdict}
        assert {"step_s", "phase_forward_s", "effective_tokens_per_s"} <= set(said)
        assert set(said.values()) == {"slower"}


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [((10, 10, 10), (9.8, 9.8, 9.8), "faster"), ((9, 10, 11), (8.5, 9.5, 10.5), "undecided")],
    ids=["2 % between runs that agree", "5 % between runs that scatter"],
)
def test_repeats_show_how_much_a_run_differs_from_itself(
    before: Sequence[float], after: Sequence[float], verdict: str, tmp_path: Path
) -> None:
    """Nothing is assumed then."""
    sides = [
        [run(tmp_path / f"{side}{n}", steps(ms, seed=10 * side + n)) for n, ms in enumerate(each)]
        for side, each in enumerate((before, after))
    ]
    found = compare(*sides)

    assert found.verdict == verdict
    assert not found.noise.assumed
    assert (found.noise.relative < 0.005) is (verdict == "faster")


def test_a_loss_that_differs_overrules_faster(tmp_path: Path) -> None:
    """Twice as fast, and five per cent worse."""
    found = compared(tmp_path, steps(10, loss=2.0), steps(5, loss=2.1))

    assert found.verdict == "loss differs"
    assert found.parity.verdict == "differs"
    assert found.parity.baseline_loss == pytest.approx(2.0, rel=0.005)
    assert found.parity.loss == pytest.approx(2.1, rel=0.005)


def test_losses_are_compared_at_equal_tokens(tmp_path: Path) -> None:
    """A run of twice the batch is at the same point after half of the steps."""
    falling = [
        make_step(
            index,
            facts={"loss": 10 - 0.01 * index, "tokens_effective": 100},
            forward=5,
            tags=int(Tag.WARMUP) if index < 12 else 0,
        )
        for index in range(400)
    ]
    twice = [
        make_step(
            index,
            facts={"loss": 10 - 0.02 * index - 0.005, "tokens_effective": 200},
            forward=9,
            tags=int(Tag.WARMUP) if index < 12 else 0,
        )
        for index in range(150)
    ]
    found = compared(tmp_path, falling, twice)

    assert found.parity.unit == "effective tokens"
    assert found.parity.work == 30_000
    assert found.parity.baseline_loss == pytest.approx(10 - 0.01 * 270, rel=0.002)
    assert found.parity.loss == pytest.approx(found.parity.baseline_loss, rel=0.002)


def test_other_ranks_are_compared_by_scaling_efficiency(tmp_path: Path) -> None:
    """Two ranks that do 1.8 times the work of one are each 0.9 times as fast."""
    one = run(tmp_path / "a", steps(9))
    found = compare([one], [run(tmp_path / "b", steps(10, seed=1), world=2)])

    assert found.primary == "fit_effective_tokens_per_s"
    assert found.speedup.per_rank
    assert found.speedup.value == pytest.approx(0.9, rel=0.01)


@pytest.mark.parametrize(
    ("config", "hardware", "reason"),
    [
        ({"model": "Llama"}, HARDWARE, "the model differs: GPT2 and Llama"),
        ({"parameters": 1100}, HARDWARE, "the model differs: 1,000 and 1,100 parameters"),
        # A padded vocabulary: four per cent more.
        ({"parameters": 1040, "vocabulary": 64}, HARDWARE, ""),
        ({"dataset": "Pictures"}, HARDWARE, "the task differs"),
        ({}, {"device_name": "another"}, "the hardware differs: a chip and another"),
    ],
)
def test_what_is_another_experiment_is_not_compared(
    config: Mapping[str, Scalar], hardware: Mapping[str, Scalar], reason: str, tmp_path: Path
) -> None:
    """With the reason, however much faster it is; its readings are there, and none is faster."""
    one = run(tmp_path / "a", steps(10))
    found = compare([one], [run(tmp_path / "b", steps(5), config=config, hardware=hardware)])
    step = next(change for change in found.readings if change.name == "step_s")

    assert found.verdict == ("not comparable" if reason else "faster")
    assert found.reason.startswith(reason)
    assert (found.speedup is None) is bool(reason)
    assert step.ratio == pytest.approx(0.5, rel=0.01)
    assert ({change.verdict for change in found.readings} == {None}) is bool(reason)


@pytest.mark.parametrize(
    ("samples", "verdict"), [(4096, "faster"), (5000, "not comparable"), (None, "not comparable")]
)
def test_a_dataset_of_as_many_samples_is_the_same_data(
    samples: int | None, verdict: str, tmp_path: Path
) -> None:
    """Who follows *cache what it computes* writes another class; that it differs is said."""
    one = run(tmp_path / "a", steps(10), config={"dataset": "Readings", "dataset_samples": 4096})
    kept = {"dataset": "list", "dataset_samples": samples}
    answer = compare([one], [run(tmp_path / "b", steps(5, seed=1), config=kept)])

    assert answer.verdict == verdict
    assert ("dataset", "Readings", "list") in [
        (each.name, each.before, each.after) for each in answer.differences
    ]


def test_steps_of_unknown_work_are_not_compared(tmp_path: Path) -> None:
    """Another batch size, and nothing was counted; nor are eight steady steps."""
    bare = [make_step(index, forward=10, tags=0 if index > 11 else 1) for index in range(100)]
    one = run(tmp_path / "a", bare)
    found = compare([one], [run(tmp_path / "b", bare, config={"batch_size": 16})])

    assert found.verdict == "not comparable"
    assert "neither tokens nor samples were counted" in found.reason
    few = compared(tmp_path / "few", steps(10, number=20), steps(5, number=20))
    assert few.verdict == "not comparable"
    assert "too few steady steps" in few.reason


def test_every_difference_is_listed_and_those_of_one_change_belong_together(
    tmp_path: Path,
) -> None:
    """Workers and their prefetching are one change; precision is another."""
    one = run(tmp_path / "a", steps(10), config={"num_workers": 0, "prefetch_factor": None})
    loader = {"num_workers": 2, "prefetch_factor": 2, "seed": 7, "frozen_s": 0.012}
    other = run(tmp_path / "b", steps(8), config=loader)
    third = run(tmp_path / "c", steps(8), config={**loader, "precision": "bf16-mixed"})
    found = compare([one], [other])
    both = compare([one], [third])

    assert [(d.name, d.before, d.after) for d in found.differences] == [
        ("num_workers", 0, 2),
        ("prefetch_factor", None, 2),
    ]
    assert found.changes == ("loader",)
    assert set(both.changes) == {"loader", "precision"}


def test_readings_are_those_of_the_report(tmp_path: Path) -> None:
    """Before and after to the last digit, with the ratio of the two."""
    one, other = run(tmp_path / "a", steps(10)), run(tmp_path / "b", steps(8))
    found = compare([one], [other])

    for change in found.readings:
        assert change.before == one.summary.readings[change.name].value
        assert change.after == other.summary.readings[change.name].value
        if change.low is not None and change.high is not None and change.ratio is not None:
            assert change.low <= change.ratio <= change.high


def test_long_runs_are_thinned_evenly(tmp_path: Path) -> None:
    """Twenty thousand steps, half of them of eight milliseconds: both halves are seen."""
    mixed = [
        make_step(index, forward=10 if index % 2000 < 1000 else 8, tags=0 if index > 11 else 1)
        for index in range(20_000)
    ]
    found = run(tmp_path / "a", mixed).estimates["step_mean_s"]

    assert found.log == pytest.approx(-4.71, abs=0.01)
    assert found.sampling > 0.005**2


@pytest.mark.parametrize(
    ("waited", "verdict"), [(None, "faster"), (0.01, "faster"), (0.4, "undecided")]
)
def test_a_busy_machine_leaves_open_what_waiting_for_it_may_explain(
    waited: float | None, verdict: str, tmp_path: Path
) -> None:
    """A repeat of a run that waited two fifths of its time may take half as long again, or less."""
    before, after = run(tmp_path / "a", steps(10)), run(tmp_path / "b", steps(8, seed=1))
    host = HostShare(ranks=1, cpus_per_rank=2.0, threads=1, workers=0, waited_fraction=waited)
    busy = replace(before, summary=msgspec.structs.replace(before.summary, host=host))
    found = compare([busy], [after])

    assert found.verdict == verdict
    assert found.noise.source == ("drift" if verdict == "undecided" else "assumed")


@pytest.mark.parametrize(
    ("order", "source"),
    [
        ("ABABAB", "turns"),
        ("ABBAAB", "turns"),
        ("AbAbBa", "turns"),
        ("AAABBB", "repeats"),
        ("AABBAB", "repeats"),
        ("AaAbBb", "repeats"),
    ],
)
def test_turns_are_known_by_when_the_runs_began(order: str, source: str, tmp_path: Path) -> None:
    """Pair by pair, whichever of the two went first; a small letter begins with the one before."""
    sides: dict[str, list[ComparedRun]] = {"A": [], "B": []}
    for place, side in enumerate(order):
        made = run(tmp_path / f"{place}", steps(10, seed=place, number=60))
        sides[side.upper()].append(began(made, f"12:00:{place - side.islower():02}"))

    assert compare(sides["A"], sides["B"]).noise.source == source


@pytest.mark.parametrize(("second", "apart_s"), [("12:05:00", 240.0), ("11:50:00", 540.0)])
def test_single_runs_lie_apart_by_what_is_between_them(
    second: str, apart_s: float, tmp_path: Path
) -> None:
    """Whichever was first; a fit of a minute is no part of it."""
    made = run(tmp_path, steps(10, seed=1, number=60))
    sides = ([began(made, at, ledger_s={"forward": 60.0})] for at in ("12:00:00", second))

    assert compare(*sides).noise.apart_s == pytest.approx(apart_s)
