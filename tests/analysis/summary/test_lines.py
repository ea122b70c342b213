"""Lines by phase and slow steps that come back, from samples and steps whose truth is planted."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.runs import RankSpec, end_to_end, make_run_dir, make_step

from trainperf.analysis.diagnosis.detectors.code import python_in_step
from trainperf.analysis.diagnosis.facts import Facts
from trainperf.analysis.diagnosis.law import gone_s
from trainperf.analysis.diagnosis.of_run import account_of
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.lines import BETWEEN, SampledCode
from trainperf.analysis.summary.schema import Summary
from trainperf.core.artifacts import write_document
from trainperf.core.artifacts.lines import Place, Sample, SampledLines, SampledStack
from trainperf.core.phases import Tag
from trainperf.core.steps.records import StepRecord
from trainperf.core.window import RunWindow


PLACES = (
    Place("train.py", 200, "main"),
    Place("train.py", 100, "estimate_loss"),
    Place("train.py", 88, "estimate_loss"),
    Place("model.py", 20, "Block.forward"),
    Place("train.py", 210, "main"),
    Place("train.py", 5, "<module>"),
    Place("model.py", 30, "GPT.forward"),
    Place("model.py", 40, "histogram"),
    Place("model.py", 31, "GPT.forward"),
    Place("script.py", 12, "<module>"),
    Place("script.py", 20, "<module>"),
)
STACKS = (
    SampledStack("other", (5, 0, 2, 3), 3),  # a module that estimate_loss calls
    SampledStack("other", (5, 0, 1), 3),
    SampledStack("forward", (5, 4, 3), 2),
    SampledStack("other", (5, 4), 2),
    SampledStack("forward", (5, 4, 6, 3), 2),
    SampledStack("forward", (5, 4, 6, 7), 2),
    SampledStack("forward", (5, 4, 8), 2),
    SampledStack("forward", (9,), 1),
    SampledStack("backward", (9,), 1),
    SampledStack("other", (10,), 1),
    SampledStack("forward", (5, 0, 2, 6, 3), 3),
    SampledStack("forward", (5, 4, 3), 2, "time.sleep"),
    SampledStack("other", (5, 0, 1), 3, "Python"),
    SampledStack("other", (5, 4), 2, "torch.cuda.empty_cache"),
    SampledStack("forward", (5, 0, 2), 3, "gc.collect"),
)


def summary_of(
    path: Path,
    steps: Sequence[StepRecord],
    samples: Sequence[Sample] = (),
    *,
    every: int = 1,
    attempts: int = 1,
    window: RunWindow | None = None,
) -> Summary:
    """Of a run with these steps, and with these samples if there are any.

    Args:
        path: To write it below.
        steps: Of each attempt.
        samples: Of its latest attempt.
        every: One of so many samples was kept.
        attempts: Each has the steps.
        window: Of the run that is read.
    """
    ranks = [RankSpec(steps=steps, attempt=attempt) for attempt in range(attempts)]
    directory = make_run_dir(path / "trainperf", ranks)
    if samples:
        lines = SampledLines(
            taken=every * len(samples),
            every=every,
            cost_s=0.001,
            places=PLACES,
            stacks=STACKS,
            samples=tuple(samples),
        )
        write_document(lines, directory)
    return summarize(Run.open(directory, window))


@end_to_end
def every_20th(number: int = 400, other_ms: float = 400.0, tags: int = 0) -> Iterator[StepRecord]:
    """Steps of 35 ms, every 20th of which does something else too."""
    for index in range(number):
        more = other_ms if index % 20 == 0 and index else 0.0
        mark = int(Tag.WARMUP) if index < 12 else tags if more else 0
        yield make_step(index, tags=mark, forward=20.0, backward=14.0, other=1.0 + more)


def seen(stack: int, steps: Sequence[int]) -> list[Sample]:
    """Samples of one stack, in these steps."""
    return [Sample(stack, step, 10_000) for step in steps]


def test_validation_in_every_20th_step_is_named_with_its_share_and_line(tmp_path: Path) -> None:
    """The loop of the issue that was told to look for a quiet machine."""
    slow = [step for step in range(20, 400, 20) for _ in range(4)]
    samples = [*seen(0, slow), *seen(1, slow[:10]), *seen(2, range(400))]
    summary = summary_of(tmp_path, every_20th(), samples)
    first = summary.findings[0]
    assert (first.id, first.where) == ("slow_steps", "train.py:88")
    assert "every 20th step" in first.title
    assert first.fraction == pytest.approx(19 * 0.4 / summary.run.fit_s, rel=0.01)
    assert first.advice == "Run estimate_loss less often"


def every_10th(number: int = 400, more_ms: float = 5.5) -> list[StepRecord]:
    """Steps of 10 ms, 6 of them in forward, which takes longer in every 10th."""
    return [
        make_step(
            i,
            tags=int(Tag.WARMUP) * (i < 12),
            start_ns=i * 10_000_000,
            forward=6.0 + more_ms * (i % 10 == 0),
            backward=4.0,
        )
        for i in range(number)
    ]


SLOW_STEPS = range(20, 400, 10)
ORDINARY = [step for step in range(20, 400) if step % 10]


@pytest.mark.parametrize(
    ("stacks", "subject", "where"),
    [
        ((4, 5), "histogram", "model.py:40"),
        ((4, 6), "model.py:31", "model.py:31"),
        ((4, 10), "estimate_loss", "train.py:88"),
    ],
    ids=["a function of its own", "a line of forward", "the model in validation"],
)
def test_slow_steps_name_what_only_they_run(
    stacks: tuple[int, int], subject: str, where: str, tmp_path: Path
) -> None:
    """Forward takes 6 of 10 ms and 5.5 more in every 10th: forward itself is in every step."""
    usual, more = stacks
    samples = [
        *seen(usual, [step for step in ORDINARY for _ in range(6)]),
        *seen(usual, [step for step in SLOW_STEPS for _ in range(6)]),
        *seen(more, [step for step in SLOW_STEPS for _ in range(5)]),
        *seen(more, ORDINARY[:2]),  # a step that was slow by chance
    ]
    summary = summary_of(tmp_path, every_10th(), samples)
    finding = next(finding for finding in summary.findings if finding.id == "slow_steps")
    assert finding.advice == f"Run {subject} less often"
    assert finding.where == where
    assert summary.slow_steps.line.fraction == pytest.approx(1.0, abs=0.05)


def test_slow_steps_that_only_do_more_of_the_same_name_nothing(tmp_path: Path) -> None:
    """Longer sequences, say: every line of forward takes its part."""
    samples = [
        sample
        for stack in (2, 4, 6)
        for sample in seen(stack, [*ORDINARY, *ORDINARY, *(list(SLOW_STEPS) * 4)])
    ]
    assert summary_of(tmp_path, every_10th(), samples).slow_steps.line is None


def replaced(
    steps: Sequence[StepRecord], at: Mapping[int, Mapping[str, float]]
) -> list[StepRecord]:
    """Some of the steps with other phases."""
    return [
        make_step(step.index, start_ns=step.start_ns, **at[place]) if place in at else step
        for place, step in enumerate(steps)
    ]


def shifted() -> list[StepRecord]:
    """A loop that counts the batches of its epoch, on a machine with neighbours."""
    steps = replaced(every_20th(), {n: {"forward": 75.0} for n in (33, 77, 131, 277, 333)})
    return [
        msgspec.structs.replace(step, index=number)
        for number, step in enumerate([*steps[:207], *every_20th(200)[1:]])
    ]


def in_turns() -> list[StepRecord]:
    """Each slow step is slow in another of four phases."""
    phases = ("forward", "backward", "optimizer", "other")
    return [
        make_step(
            i,
            tags=int(Tag.WARMUP) * (i < 12),
            **{
                phase: 10.0 + 80.0 * (i % 20 == 0 and i // 20 % 4 == number)
                for number, phase in enumerate(phases)
            },
        )
        for i in range(400)
    ]


SLOW = {"forward": 90.0}
MINUTE = {"forward": 20.0, "backward": 60_000.0}
AT_NO_DISTANCE = (17, 40, 71, 97, 139, 150, 222, 241, 300, 333, 390)


@pytest.mark.parametrize(
    ("steps", "slow"),
    [
        # The mean of the ordinary steps is longer than the slow ones.
        (replaced(every_20th(), {33: MINUTE, 55: MINUTE}), (20, "other", 1.0)),
        (shifted(), (20, "other", 1.0)),
        (in_turns(), None),
        (replaced(every_20th(other_ms=0.0), dict.fromkeys(AT_NO_DISTANCE, SLOW)), None),
        # One after the other: a slow stretch, and nothing that comes back.
        (replaced(every_20th(other_ms=0.0), dict.fromkeys(range(100, 140), SLOW)), None),
        # Another rule owns these.
        *((every_20th(tags=int(tag)), None) for tag in (Tag.GC, Tag.TURN_BOUNDARY)),
    ],
    ids=[
        "stalls of a minute in ordinary steps",
        "shifted by epochs, with steps that are slow by chance",
        "slow in a phase of their own each",
        "slow by chance",
        "a slow stretch",
        "the garbage collector",
        "the edge of a turn",
    ],
)
def test_slow_steps_come_back_at_a_regular_distance(
    steps: list[StepRecord], slow: tuple[int, str, float] | None, tmp_path: Path
) -> None:
    """With the phase in which most of them is, or there are none."""
    found = summary_of(tmp_path, steps).slow_steps

    assert (found and (found.every, found.phase, found.phase_fraction)) == slow


def test_what_slow_steps_spend_in_no_phase_is_not_told_twice(tmp_path: Path) -> None:
    """Nor is a quiet machine asked for."""
    summary = summary_of(tmp_path, every_20th())
    assert summary.value("phase_other_s") / summary.value("step_mean_s") > 0.3  # type: ignore[operator]
    assert not {"unnamed_time", "noisy_run"} & {finding.id for finding in summary.findings}


STEPS = [
    make_step(i, tags=int(Tag.WARMUP) * (i < 12), forward=20.0, other=15.0) for i in range(100)
]
"""Of 35 ms, 15 of them in no phase; the first twelve warm up."""


@pytest.mark.parametrize(
    ("samples", "where", "advice"),
    [
        # Not the module that training runs as well, which the function calls.
        (
            [*seen(0, range(12, 100)), *seen(3, range(12, 20)), *seen(2, range(100))],
            "train.py:88",
            "Lighten estimate_loss",
        ),
        # A script without functions: `<module>` is no function that could be made lighter.
        (
            [sample for stack in (7, 8, 9) for sample in seen(stack, range(12, 60))],
            "script.py:20",
            "Lighten script.py:20",
        ),
        # Most samples are of step 3, in the warm-up.
        ([*seen(0, [3] * 200), *seen(3, range(12, 60))], "train.py:210", "Lighten main"),
        # An older run, or one with `lines=False`.
        ([], "", "Find out what runs there"),
    ],
    ids=["a function", "a script's own line", "not of the warm-up", "no samples"],
)
def test_unnamed_time_names_what_was_seen_there(
    samples: list[Sample], where: str, advice: str, tmp_path: Path
) -> None:
    """Fifteen of 35 ms."""
    first = summary_of(tmp_path, STEPS, samples).findings[0]
    assert (first.id, first.where, first.advice) == ("unnamed_time", where, advice)
    assert first.fraction == pytest.approx(15 / 35, abs=0.01)


IN_STEADY = [*seen(13, range(20, 48)), *seen(3, range(48, 100)), *seen(7, range(12, 100))]
"""Of 80 samples in no phase 28 give memory back, all in the first half."""


@pytest.mark.parametrize(
    ("samples", "reads", "fraction"),
    [
        (IN_STEADY, {}, 28 / 80 * 15 / 35),
        (IN_STEADY, {"every": 8}, 28 / 80 * 15 / 35),
        ([*seen(13, [0] * 500), *seen(3, range(12, 100))], {}, None),
        (IN_STEADY, {"window": RunWindow(first=50)}, None),
        (IN_STEADY * 3, {"attempts": 2}, None),
    ],
    ids=["every step", "one of eight samples", "the first step", "a window", "a second attempt"],
)
def test_calls_that_stall_a_device_have_their_share_of_the_steady_steps(
    samples: list[Sample], reads: dict[str, Any], fraction: float | None, tmp_path: Path
) -> None:
    """Fifteen of 35 ms are in no phase, where memory is given back."""
    found = {each.id: each for each in summary_of(tmp_path, STEPS, samples, **reads).findings}
    calls = found.get("device_calls")

    assert (calls and calls.fraction) == (None if fraction is None else pytest.approx(fraction))
    assert calls is None or calls.where == "train.py:210"


COLLECTING = [
    make_step(
        i,
        tags=int(Tag.WARMUP if i < 12 else Tag.GC * (i % 2)),
        start_ns=i * 35_000_000,
        forward=35.0,
        facts={"gc_ns": 14_000_000 * (i % 2)},
    )
    for i in range(100)
]
"""Of 35 ms the collector takes 14 in every second step, which is tagged."""
ODD, EVEN = range(1, 100, 2), range(0, 100, 2)


@pytest.mark.parametrize(
    ("samples", "reads", "where"),
    [
        ([*seen(14, [*ODD] * 2), *seen(7, [*ODD] * 3), *seen(7, [*EVEN] * 5)], {}, "train.py:88"),
        # A fifth of it is asked for, in steps that are read no more; the rest comes by itself.
        (
            [*seen(14, [*ODD][:10] * 2), *seen(7, [*ODD] * 5), *seen(7, [*EVEN] * 5)],
            {"window": RunWindow(first=50)},
            "",
        ),
        ([*seen(14, [*ODD] * 2), *seen(7, [*EVEN])], {"attempts": 2}, ""),
    ],
    ids=["all of it", "outside the window", "a second attempt"],
)
@pytest.mark.parametrize("every", [1, 8])
def test_garbage_that_a_line_asks_for_has_its_share_of_all_steps_that_are_read(
    samples: list[Sample], reads: dict[str, Any], where: str, every: int, tmp_path: Path
) -> None:
    """Steps in which the collector ran are not steady."""
    few = samples[::every]
    findings = summary_of(tmp_path, COLLECTING, few, every=every, **reads).findings

    assert next(each for each in findings if each.id == "garbage").where == where


def test_what_runs_no_operator_can_be_left_to_every_nth_step(tmp_path: Path) -> None:
    """Samples saw Python and nothing else: no gradient changes there, and it has that name."""
    plain, computes = (
        summary_of(
            tmp_path / str(stack), STEPS, [*seen(stack, range(12, 100)), *seen(2, range(100))]
        ).findings[0]
        for stack in (12, 1)
    )
    assert (plain.id, computes.id) == ("python_in_step", "unnamed_time")
    assert plain.advice == "Move what estimate_loss does out of the step"
    assert "every 50th step" in plain.action
    assert computes.action.startswith("train.py:100: if training does not depend on it (printing")


@pytest.mark.parametrize(
    ("asleep", "working", "fires"),
    [(60, 40, True), (30, 70, True), (20, 80, False), (4, 8, False)],
    ids=["60 %", "30 %", "20 % of forward are 12 % of the step", "few samples"],
)
def test_a_sleep_in_forward_is_named_with_its_share_of_the_step(
    tmp_path: Path, asleep: int, working: int, *, fires: bool
) -> None:
    """Forward takes 60 % of the step; a line that may run an operator is not meant."""
    steps = [make_step(step, forward=60.0, backward=40.0) for step in range(100)]
    samples = [*seen(11, range(asleep)), *seen(2, range(working))]
    summary = summary_of(tmp_path, steps, samples)
    findings = [finding for finding in summary.findings if finding.id == "python_in_step"]
    assert bool(findings) is fires
    if fires:
        share = asleep / (asleep + working)
        assert findings[0].where == "model.py:20"
        assert "Block.forward" in findings[0].title
        assert "time.sleep" in findings[0].evidence[1]
        assert findings[0].fraction == pytest.approx(0.6 * share)
        assert findings[0].gain_upper_bound > 1 / (1 - 0.6 * share)  # type: ignore[operator]


def test_a_loop_without_phases_has_its_python_in_other(tmp_path: Path) -> None:
    """All of its step is there; `unnamed_time` can say nothing about it."""
    steps = [make_step(step, other=100.0) for step in range(100)]
    summary = summary_of(tmp_path, steps, [*seen(12, range(40)), *seen(3, range(60))])
    work = ("phase_forward_s", "phase_backward_s", "phase_optimizer_s")
    readings = {name: value for name, value in summary.readings.items() if name not in work}
    bare = msgspec.structs.replace(summary, readings=readings)
    facts = Facts(summary=bare)
    account = account_of(facts)
    cause = python_in_step(account, facts)
    assert cause.where == "train.py:100"
    assert account.share(sum(cause.claim.owns_s.values())) == pytest.approx(0.4)
    assert account.share(gone_s(account, cause.claim)) >= 0.4


@pytest.mark.parametrize("apart", [True, False])
def test_a_wait_that_is_also_the_loops_own_code_is_divided_by_where_it_was(*, apart: bool) -> None:
    """A quarter of the samples is in the loader, the rest at a line of the loop."""
    stacks = (
        SampledStack("data_wait", (9,), 1, "", loads=True),
        SampledStack("data_wait", (10,), 1, "json", loads=False),
        SampledStack("forward", (5,), 1, "", loads=False),
    )
    lines = SampledLines(
        taken=120,
        every=1,
        cost_s=0.001,
        places=PLACES,
        stacks=stacks,
        samples=(*seen(0, range(20)), *seen(1, range(60)), *seen(2, range(40))),
    )
    found = {each.slot: each for each in SampledCode(lines, apart=apart).phases(range(100))}

    assert found["data_wait"].loader_fraction == pytest.approx(0.25)
    if apart:
        own, host = found[BETWEEN], found[BETWEEN].host
        assert (own.owner.where, host.names) == ("script.py:20", ("json",))
        assert [line.where for line in found["data_wait"].lines] == ["script.py:12"]
    else:
        assert BETWEEN not in found
        assert found["data_wait"].samples == 80


def test_a_function_that_is_seen_around_the_work_only_is_none_that_runs_the_loop() -> None:
    """A batch that is put together before a first forward, or between two: two phases, one work."""
    stacks = (
        SampledStack("data_wait", (0, 1), 2, ""),
        SampledStack("other", (0, 1), 2, "torch.tensor"),
        SampledStack("other", (0, 2), 2, "torch.tensor"),
        SampledStack("forward", (4,), 1, ""),
        SampledStack("backward", (4,), 1, ""),
    )
    lines = SampledLines(
        taken=100,
        every=1,
        cost_s=0.001,
        places=PLACES,
        stacks=stacks,
        samples=tuple(each for at in range(5) for each in seen(at, range(20))),
    )
    other = next(each for each in SampledCode(lines).phases(range(100)) if each.slot == "other")

    for line in (other.owner, other.host.line):
        assert (line.function, line.fraction) == ("estimate_loss", 1.0)


@pytest.mark.parametrize(
    ("gathering", "working", "where", "inside"),
    [(2, 1, "train.py:88", 0.75), (1, 2, "train.py:100", 0.25)],
    ids=["on what came", "before"],
)
def test_a_call_between_ranks_has_the_share_of_what_its_function_does_after_it(
    gathering: int, working: int, where: str, inside: float
) -> None:
    """A quarter of the samples gathers, half works; the loop itself is no function."""
    gathers = "torch.distributed.all_gather_object"
    stacks = (
        SampledStack("other", (0, gathering), 2, gathers),
        SampledStack("other", (0, working), 2, ""),
        SampledStack("other", (4,), 1, ""),
        SampledStack("forward", (0, 6), 1, ""),
    )
    counts = (20, 40, 20, 20)
    lines = SampledLines(
        taken=100,
        every=1,
        cost_s=0.001,
        places=PLACES,
        stacks=stacks,
        samples=tuple(each for at, n in enumerate(counts) for each in seen(at, range(n))),
    )
    other = next(each for each in SampledCode(lines).phases(range(100)) if each.slot == "other")
    (call,) = other.stalls

    assert (call.name, call.where) == (gathers, where)
    assert (call.fraction, call.inside) == pytest.approx((0.25, inside))
    assert other.host is None
