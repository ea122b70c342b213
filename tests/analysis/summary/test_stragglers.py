"""Who is late: planted delays are found at their point, with their cause; noise names nobody."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from support.late import latest, named
from support.runs import MS, RankSpec, make_info, make_step, make_steps, summary_of

from trainperf.analysis.summary.lateness import LatenessFold
from trainperf.analysis.summary.schema import SyncPoint
from trainperf.analysis.summary.waits import sync_points
from trainperf.core.steps.block import StepBlock, StepSchema
from trainperf.core.steps.records import StepRecord


Phases = Mapping[str, float]

BASE: Phases = {"data_wait": 2, "forward": 10, "backward": 20, "optimizer": 3, "callbacks": 1}
STEPS = 200


def simulate(
    early: Sequence[Phases], late: Sequence[Phases], noise_ms: float = 0.1, transfer_ms: float = 1
) -> list[list[StepRecord]]:
    """Ranks that wait for each other at both points.

    *early* and *late* give each rank's extra milliseconds by phase, before the all-reduce and
    after it; what a rank waits goes into its tail (and backward) or its loop phase.
    """
    rng = np.random.default_rng(5)
    ranks: list[list[StepRecord]] = [[] for _ in early]
    for index in range(STEPS):
        jitter = rng.uniform(0, noise_ms, (2, len(early)))
        before = [sum(extra.values()) + jitter[0, r] for r, extra in enumerate(early)]
        after = [sum(extra.values()) + jitter[1, r] for r, extra in enumerate(late)]
        for rank, steps in enumerate(ranks):
            tail = transfer_ms + max(before) - before[rank]
            phases = dict(BASE)
            for extra in (early[rank], late[rank]):
                for phase, spent in extra.items():
                    # What is unseen makes a rank late and is in none of its phases.
                    phases[phase] = phases.get(phase, 0.0) + spent
            phases.pop("unseen", None)
            phases["forward"] += jitter[0, rank]
            phases["optimizer"] += jitter[1, rank]
            phases["backward"] += tail
            phases["loop"] = 0.5 + max(after) - after[rank]
            steps.append(make_step(index, facts={"tail_ns": round(tail * MS)}, **phases))
    return ranks


def points(
    ranks: list[list[StepRecord]],
    block: int = 64,
    *,
    loop_waits: bool = True,
    device: str = "cpu",
) -> dict[str, SyncPoint]:
    """The synchronisation points of simulated ranks, folded in blocks."""
    fold = LatenessFold(range(len(ranks)), loop_waits=loop_waits)
    schema = StepSchema(("tail_ns",), device)
    for first in range(0, STEPS, block):
        blocks = [StepBlock.from_records(steps[first : first + block], schema) for steps in ranks]
        fold.observe(blocks)
    return {point.point: point for point in fold.points()}


NOTHING: Phases = {}
TWO, FOUR = [NOTHING] * 2, [NOTHING] * 4
BEFORE = ("data_wait", "h2d", "forward", "backward", "callbacks")


def who(point: SyncPoint) -> dict[int, str | None]:
    """Each late rank with its cause."""
    return {late.rank: late.cause for late in point.late}


def on(ranks: int, rank: int, **extra: float) -> list[Phases]:
    """What one of so many ranks does longer."""
    return [extra if place == rank else NOTHING for place in range(ranks)]


def mixed(
    first: list[list[StepRecord]], second: list[list[StepRecord]], every: int
) -> list[list[StepRecord]]:
    """Steps of the first at every so manieth place, else of the second."""
    return [
        [(a if index % every == 0 else b)[index] for index in range(STEPS)]
        for a, b in zip(first, second, strict=True)
    ]


@pytest.mark.parametrize(
    ("early", "late", "backward", "loop"),
    [
        *(
            (on(2, rank, **{phase: 20}), TWO, {rank: phase}, {})
            for rank in (0, 1)
            for phase in BEFORE
        ),
        *(
            (TWO, on(2, rank, **{phase: 20}), {}, {rank: phase})
            for rank in (0, 1)
            for phase in ("optimizer", "callbacks", "other")
        ),
        # Ranks that are late at different points do not cancel.
        (on(2, 0, data_wait=20), on(2, 1, optimizer=20), {0: "data_wait"}, {1: "optimizer"}),
        # Callbacks run on both sides of backward and explain only what the other phases do not.
        (on(2, 0, data_wait=20), on(2, 0, callbacks=20), {0: "data_wait"}, {0: "callbacks"}),
        # Late before, and after in no phase: the first explains only the first.
        (on(2, 0, callbacks=20), on(2, 0, unseen=20), {0: "callbacks"}, {0: None}),
        (on(2, 0, callbacks=20), on(2, 0, optimizer=20), {0: "callbacks"}, {0: "optimizer"}),
        # That a fourth rank waits for three that arrive together is no one's fault.
        ([*[{"data_wait": 20}] * 3, NOTHING], FOUR, {}, {}),
        (on(4, 2, h2d=20), FOUR, {2: "h2d"}, {}),
        (TWO, TWO, {}, {}),
        (FOUR, FOUR, {}, {}),
    ],
)
def test_a_delay_is_found_where_it_is_waited_for_with_its_cause(
    early: Sequence[Phases],
    late: Sequence[Phases],
    backward: dict[int, str | None],
    loop: dict[int, str | None],
) -> None:
    """20 ms before the all-reduce or after it; equal ranks have 0.2 ms of noise."""
    found = points(simulate(early, late, noise_ms=0.2))

    assert (who(found["backward"]), who(found["loop"])) == (backward, loop)
    for point in found.values():
        for each in point.late:
            assert each.late_s == pytest.approx(0.020, rel=0.02)
            assert point.lost_s == pytest.approx(0.020, rel=0.02)
            assert point.late_fraction == 1.0
            assert each.cause is None or each.cause_s == pytest.approx(0.020, rel=0.05)


def test_a_rank_that_is_late_every_other_step_is_not_named() -> None:
    """A coin flip is no straggler, though its time is lost all the same."""
    slow, swapped = (simulate(on(2, rank, forward=20), TWO) for rank in (0, 1))
    calm = points(simulate(TWO, TWO))["backward"]

    turns = points(mixed(slow, swapped, 2))["backward"]

    assert turns.late == ()
    assert turns.lost_s == pytest.approx(0.020, rel=0.02)
    assert (points(slow)["backward"].who, calm.who, turns.who) == ("same", "nobody", "rotating")


def test_the_transfer_is_what_even_the_last_rank_waits() -> None:
    """3 ms of all-reduce are nobody's delay."""
    backward = points(simulate(on(2, 0, forward=10), TWO, noise_ms=0, transfer_ms=3))["backward"]

    assert backward.transfer_s == pytest.approx(0.003)
    assert backward.skew_s == pytest.approx(0.010, rel=0.002)
    assert backward.wait_s == (pytest.approx(0.003), pytest.approx(0.013, rel=0.01))


def test_a_delay_below_a_millisecond_or_a_twentieth_of_the_step_is_not_worth_a_name() -> None:
    """1.5 ms of a 38 ms step."""
    found = points(simulate(on(2, 0, forward=1.5), TWO, noise_ms=0))

    assert found["backward"].late == ()
    assert found["backward"].skew_s == pytest.approx(0.0015, rel=0.002)


def test_without_a_tail_only_the_loop_is_judged_and_of_one_rank_nothing() -> None:
    """Another strategy than DDP, say."""
    bare = [
        [make_step(step.index, **_phases(step)) for step in steps]
        for steps in simulate(TWO, on(2, 0, callbacks=20))
    ]

    assert list(points(bare)) == ["loop"]
    assert points(simulate([NOTHING], [NOTHING])) == {}


def test_the_size_of_the_blocks_does_not_matter() -> None:
    """Constant memory, the same answer."""
    ranks = simulate(on(2, 0, forward=20), on(2, 1, callbacks=9))

    small, large = points(ranks, block=7), points(ranks, block=STEPS)

    for point, found in small.items():
        assert found.lost_s == pytest.approx(large[point].lost_s)
        assert named(found) == named(large[point])


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_delay_that_no_phase_explains_has_no_cause(device: str) -> None:
    """A slower device shows in the waits; where it runs ahead its tail is no time of the host."""
    waits = 20.0 * (device == "cpu")
    ranks = [
        [
            make_step(index, facts={"tail_ns": tail * MS}, **{**BASE, "backward": backward})
            for index in range(STEPS)
        ]
        for tail, backward in ((1, 20.0), (21, 20.0 + waits))
    ]

    assert named(points(ranks, device=device)["backward"]) == (0, None)


def test_ranks_of_a_plain_loop_are_judged_at_backward_only(tmp_path: Path) -> None:
    """Nothing makes them wait in `loop`: what one of them does there keeps nobody."""
    loops = []
    for kind in ("plain", "lightning"):
        specs = [
            RankSpec(
                steps=make_steps(100, forward=20, loop=busy, facts={"tail_ns": MS}),
                info=make_info(rank=rank, world_size=2, config={"loop": kind}),
            )
            for rank, busy in ((0, 25.0), (1, 5.0))
        ]
        summary = summary_of(tmp_path / kind, specs)
        loops.append([point.point for point in summary.synchronisation])
        assert ("straggler" in {finding.id for finding in summary.findings}) == (kind != "plain")

    assert loops == [["backward"], ["backward", "loop"]]


def asynchronous(extra: Phases, *, tail: bool) -> list[list[StepRecord]]:
    """Two ranks on a device: rank 0 is late by *extra*, the other's host waits in `loop` only.

    *tail* says whether the device waits in backward too: it does for what comes before.
    """
    spent = sum(extra.values())
    phases = [{**BASE, "loop": 1.0}, {**BASE, "loop": 1.0 + spent}]
    phases[0] |= {phase: phases[0].get(phase, 0.0) + ms for phase, ms in extra.items()}
    tails = [1.0, 1.0 + spent * tail]
    return [
        [make_step(index, facts={"tail_ns": round(waited * MS)}, **rank) for index in range(STEPS)]
        for waited, rank in zip(tails, phases, strict=True)
    ]


@pytest.mark.parametrize("phase", ["data_wait", "h2d", "forward", "backward", "callbacks"])
def test_on_a_device_a_delay_before_backward_explains_the_wait_in_the_loop_too(phase: str) -> None:
    """The host of the other rank is not held up in backward: it waits for the same 20 ms later."""
    found = points(asynchronous({phase: 20}, tail=True), device="cuda")

    assert named(found["backward"]) == (0, phase)
    assert named(found["loop"]) == (0, phase)
    assert latest(found["loop"]).cause_s == pytest.approx(0.020, rel=0.002)


def test_on_a_device_a_delay_after_backward_is_found_at_the_loop() -> None:
    """The device waited for nobody in backward."""
    found = points(asynchronous({"optimizer": 20}, tail=False), device="cuda")

    assert found["backward"].late == ()
    assert named(found["loop"]) == (0, "optimizer")


def accumulated(
    extra: Phases, *, at_loop_ms: float, at_backward_ms: float
) -> list[list[StepRecord]]:
    """Two ranks, four micro-batches a step: rank 0 is late by *extra* in all of them together."""
    late = {**BASE, "loop": 1.0, "backward": 21.0}
    late |= {phase: late.get(phase, 0.0) + ms for phase, ms in extra.items()}
    early = {**BASE, "loop": 1.0 + at_loop_ms, "backward": 21.0 + at_backward_ms}
    tails = [1.0, 1.0 + at_backward_ms]
    return [
        [
            make_step(index, micro_batches=4, facts={"tail_ns": round(tail * MS)}, **phases)
            for index in range(STEPS)
        ]
        for tail, phases in zip(tails, (late, early), strict=True)
    ]


@pytest.mark.parametrize("phase", ["data_wait", "h2d", "forward", "backward"])
def test_with_accumulation_all_but_the_last_micro_batch_are_waited_for_in_the_loop(
    phase: str,
) -> None:
    """10 ms late in each of four: 30 ms before a fetch, and 10 ms in the last one's all-reduce."""
    found = points(accumulated({phase: 40}, at_loop_ms=30, at_backward_ms=10))

    assert named(found["loop"]) == (0, phase)
    assert latest(found["loop"]).cause_s == pytest.approx(0.030, rel=0.002)
    assert named(found["backward"]) == (0, phase)
    assert latest(found["backward"]).cause_s == pytest.approx(0.010, rel=0.002)


def test_with_accumulation_waiting_in_backward_is_no_cause_of_being_late_in_the_loop() -> None:
    """Rank 1 waits 20 ms in backward for rank 0, and is then late for no reason that shows."""
    ranks = accumulated({"forward": 20}, at_loop_ms=0, at_backward_ms=20)
    waiting = [
        make_step(s.index, micro_batches=4, facts=s.facts, **{**_phases(s), "loop": 21.0})
        for s in ranks[0]
    ]

    found = points([waiting, ranks[1]])

    assert named(found["backward"]) == (0, "forward")
    assert named(found["loop"]) == (1, None)


def _phases(step: StepRecord) -> dict[str, float]:
    names = ("data_wait", "h2d", "forward", "backward", "optimizer", "callbacks", "loop", "other")
    return {name: ns / MS for name, ns in zip(names, step.host_ns, strict=True)}


def test_in_a_plain_loop_a_delay_after_backward_arrives_at_the_next_one() -> None:
    """Nothing absorbs it before."""
    backward = points(simulate(on(2, 0, optimizer=20), TWO), loop_waits=False)["backward"]

    assert named(backward) == (0, "optimizer")
    assert latest(backward).cause_s == pytest.approx(0.020, rel=0.05)


def broadcast(late_ms: float) -> list[list[StepRecord]]:
    """Four ranks of which rank 3 has a late callback, and the broadcast holds rank 1 for it."""
    rng = np.random.default_rng(3)
    ranks: list[list[StepRecord]] = [[] for _ in range(4)]
    for index in range(STEPS):
        for rank, steps in enumerate(ranks):
            held = late_ms * (rank == 1)
            tail = 1 + late_ms * (rank in (0, 2)) + rng.uniform(0, 0.1)
            own = {**BASE, "loop": 1.0 + held, "callbacks": 1.0 + late_ms * (rank == 3)}
            own["backward"] += tail
            steps.append(make_step(index, facts={"tail_ns": round(tail * MS)}, **own))
    return ranks


def test_a_rank_that_was_held_for_another_is_not_to_blame() -> None:
    """The worked example: both arrive 5 ms late, and only rank 3 is slower in what it does."""
    found = points(broadcast(8.0))

    backward = found["backward"]
    assert [(late.rank, late.cause) for late in backward.late] == [(3, "callbacks")]
    assert latest(backward).cause_s == pytest.approx(0.008, rel=0.02)
    assert found["loop"].late == ()


def meeting(rank: int, ms: float) -> list[list[StepRecord]]:
    """Two ranks that meet in forward, one of which has a slow loader."""
    rng = np.random.default_rng(4)
    ranks: list[list[StepRecord]] = [[], []]
    for index in range(STEPS):
        for place, steps in enumerate(ranks):
            own = {**BASE, "backward": 21.0 + rng.uniform(0, 0.1)}
            own["data_wait" if place == rank else "forward"] += ms + rng.uniform(0, 0.1)
            steps.append(make_step(index, facts={"tail_ns": MS}, **own))
    return ranks


def with_collectives(ranks: list[list[StepRecord]], counted: str | None) -> dict[str, SyncPoint]:
    """The points, where so many collectives were counted."""
    fold = LatenessFold(range(len(ranks)), loop_waits=False)
    schema = StepSchema(("tail_ns",), "cpu")
    fold.observe([StepBlock.from_records(steps, schema) for steps in ranks], counted)
    return {point.point: point for point in fold.points()}


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_that_meet_in_forward_are_judged_there(rank: int) -> None:
    """A metric is reduced in `training_step`: the delay never reaches the all-reduce."""
    found = with_collectives(meeting(rank, 20.0), "forward 1, backward 2")

    assert list(found) == ["forward", "backward"]
    assert named(found["forward"]) == (rank, "data_wait")
    assert latest(found["forward"]).cause_s == pytest.approx(0.020, rel=0.02)
    assert found["backward"].late == ()


def gathered(
    rank: int, ms: float, *, late: str = "data_wait", forward_ms: float = 0.0
) -> list[list[StepRecord]]:
    """Two ranks that meet between fetch and forward, in no phase; one is late before or after.

    The other one may take longer for forward.
    """
    rng = np.random.default_rng(6)
    ranks: list[list[StepRecord]] = [[], []]
    for index in range(STEPS):
        for place, steps in enumerate(ranks):
            own = {**BASE, "backward": 21.0, "other": 0.5 + rng.uniform(0, 0.1)}
            wait_ms = 0.0 if place == rank else ms + rng.uniform(0, 0.1)
            if place == rank:
                own[late] += ms
            own["other" if late == "data_wait" else "backward"] += wait_ms
            tail = wait_ms * (late != "data_wait") + forward_ms * (place == rank)
            own["forward" if place != rank else "backward"] += forward_ms
            steps.append(make_step(index, facts={"tail_ns": round((1.0 + tail) * MS)}, **own))
    return ranks


@pytest.mark.parametrize("rank", [0, 1])
def test_ranks_that_meet_before_forward_outside_every_phase_are_judged_there(rank: int) -> None:
    """A Trainer gathers token counts there: a late loader never reaches the all-reduce."""
    found = with_collectives(gathered(rank, 20.0), "backward 2, other 1")

    assert list(found) == ["backward", "other"]
    assert named(found["other"]) == (rank, "data_wait")
    assert latest(found["other"]).cause_s == pytest.approx(0.020, rel=0.02)
    assert found["other"].transfer_s < 0.001
    assert found["backward"].late == ()


def test_where_ranks_meet_before_forward_a_slower_forward_hides_nobody() -> None:
    """Rank 1 waits for its data, rank 0 computes forward for longer: each is late at its point."""
    found = with_collectives(gathered(1, 20.0, forward_ms=12.0), "backward 2, other 1")

    assert named(found["other"]) == (1, "data_wait")
    assert named(found["backward"]) == (0, "forward")


def test_what_is_slow_after_the_gather_is_late_at_backward() -> None:
    """The ranks have met before, and forward comes after."""
    found = with_collectives(gathered(1, 20.0, late="forward"), "backward 2, other 1")

    assert list(found) == ["backward"]
    assert named(found["backward"]) == (1, "forward")


def test_ranks_that_are_slow_in_different_phases_do_not_meet_without_a_collective() -> None:
    """The same times: rank 0 has a slow forward, and rank 1 a slow loader."""
    found = with_collectives(meeting(1, 20.0), "backward 2")

    assert list(found) == ["backward"]
    assert found["backward"].late == ()


def sharded(late: dict[str, float], ms: float = 20.0) -> list[list[StepRecord]]:
    """Two ranks without a tail: rank 1 is late by *late*, and rank 0 waits for it in backward."""
    rng = np.random.default_rng(5)
    ranks: list[list[StepRecord]] = [[], []]
    for index in range(STEPS):
        for place, steps in enumerate(ranks):
            own = {**BASE, "backward": 21.0 + rng.uniform(0, 0.1)}
            if place == 1:
                own = {phase: took + late.get(phase, 0.0) for phase, took in own.items()}
            else:
                own["backward"] += ms
            steps.append(make_step(index, **own))
    return ranks


def without_tail(ranks: list[list[StepRecord]], counted: str) -> dict[str, SyncPoint]:
    """The points of a strategy whose tail is not covered."""
    fold = LatenessFold(range(2), loop_waits=False, tail=False)
    fold.observe([StepBlock.from_records(steps, StepSchema()) for steps in ranks], counted)
    return {point.point: point for point in fold.points()}


@pytest.mark.parametrize("phase", ["data_wait", "forward", "callbacks", "optimizer"])
def test_shards_that_are_reduced_in_backward_meet_there(phase: str) -> None:
    """FSDP: there is no tail, and the whole phase of the rank that waits is longer."""
    found = without_tail(sharded({phase: 20.0}), "backward 2")

    assert list(found) == ["backward"]
    assert named(found["backward"]) == (1, phase)
    assert latest(found["backward"]).cause_s == pytest.approx(0.020, rel=0.02)


def test_without_a_tail_a_backward_that_is_slow_on_one_rank_is_nobodys_fault() -> None:
    """It may have computed or waited: nothing tells, and no collective was counted."""
    assert without_tail(sharded({"backward": 0.0}), "backward 2") == {}
    assert without_tail(sharded({"data_wait": 20.0}), "forward 2") == {}


def test_a_collective_that_nobody_waits_for_is_no_point() -> None:
    """An asynchronous one, or a broadcast of rank 0 that comes first anyway."""
    found = with_collectives(simulate(on(2, 0, data_wait=20), TWO), "forward 1, backward 2")

    assert list(found) == ["backward"]
    assert named(found["backward"]) == (0, "data_wait")


@pytest.mark.parametrize(("steps", "who"), [(19, "too_few_steps"), (20, "same")])
def test_nothing_is_claimed_of_a_few_steps(steps: int, who: str) -> None:
    """Twenty steady ones are needed."""
    ranks = simulate(on(2, 0, forward=20), TWO)

    backward = points([each[:steps] for each in ranks])["backward"]

    assert backward.who == who
    assert (backward.late == ()) is (who != "same")


@pytest.mark.parametrize(
    ("second", "others", "hosts", "late", "host", "saves_ms"),
    [
        ({"data_wait": 20}, 2, "aabb", [0, 1], "a", 20),
        ({"data_wait": 20}, 2, "abab", [0, 1], "", 20),
        ({"data_wait": 20}, 2, "aaab", [0, 1], "", 20),
        ({"forward": 20}, 2, "aabb", [0, 1], "a", 20),
        ({"data_wait": 18}, 4, "aabbcc", [0, 1], "a", 20),
        ({"forward": 18}, 4, "aabbcc", [0, 1], "a", 20),
        ({"data_wait": 8}, 4, "aabbcc", [0], "", 12),
    ],
)
def test_ranks_that_are_nearly_as_late_are_named_and_their_host_if_it_is_all_of_them(
    second: Phases, others: int, hosts: str, late: list[int], host: str, saves_ms: float
) -> None:
    """Each with its own cause, though one of them is never the last: a slow host is to blame."""
    early: list[Phases] = [{"data_wait": 20}, second, *[NOTHING] * others]
    fold = LatenessFold(range(len(early)), loop_waits=False)
    schema = StepSchema(("tail_ns",), "cpu")
    ranks = simulate(early, [NOTHING] * len(early))
    fold.observe([StepBlock.from_records(steps, schema) for steps in ranks])

    (backward,) = fold.points(dict(enumerate(hosts)))

    assert who(backward) == {rank: next(iter(early[rank])) for rank in late}
    assert (backward.host, backward.who, backward.late_fraction) == (host, "same", 1.0)
    assert backward.named_s == pytest.approx(saves_ms / 1e3, rel=0.02)


@pytest.mark.parametrize("every", [4, 20])
def test_a_rank_that_is_late_now_and_then_is_named_if_nobody_else_is(every: int) -> None:
    """In 50 of 200 steps; ten are too few to tell."""
    slow = simulate(on(4, 2, data_wait=60), FOUR)

    backward = points(mixed(slow, simulate(FOUR, FOUR), every))["backward"]

    if every == 20:
        assert (backward.late, backward.who) == ((), "nobody")
        return
    assert (*named(backward), backward.late_fraction) == (2, "data_wait", 0.25)
    assert latest(backward).late_s == pytest.approx(0.060, rel=0.02)
    assert latest(backward).cause_s == pytest.approx(0.015, rel=0.02)
    assert backward.named_s == pytest.approx(0.015, rel=0.02)


@pytest.mark.parametrize("collectives", ["none", "", None, "loop 1.00", "data_wait 0.01"])
def test_ranks_that_were_counted_to_call_few_collectives_or_none_meet_at_backward_only(
    collectives: str | None,
) -> None:
    """As the probe writes it."""
    points = sync_points(loop_waits=False, collectives=collectives)

    assert points == (("backward", "loop") if collectives == "loop 1.00" else ("backward",))
