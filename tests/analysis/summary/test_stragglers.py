"""Who is late: planted delays are found at their point, with their cause; noise names nobody."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from support.blocks import block_of
from support.late import latest
from support.runs import MS, RankSpec, make_info, make_step, make_steps, summary_of

from trainperf.analysis.summary.lateness import LatenessFold
from trainperf.analysis.summary.schema import SyncPoint
from trainperf.analysis.summary.waits import sync_points
from trainperf.core.phases import Phase
from trainperf.core.steps.block import StepSchema
from trainperf.core.steps.records import StepRecord


Phases = Mapping[str, float]

BASE: Phases = {"data_wait": 2, "forward": 10, "backward": 20, "optimizer": 3, "callbacks": 1}
USUAL: Phases = {**BASE, "backward": 21, "loop": 1, "h2d": 0, "other": 0.5}
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


def job(
    *ranks: Phases, tails: Sequence[float | None], micro_batches: int = 1
) -> list[list[StepRecord]]:
    """Equal steps: what each rank does or waits longer by phase, and its tail in milliseconds."""
    return [
        [
            make_step(
                index,
                micro_batches=micro_batches,
                facts={} if tail is None else {"tail_ns": round(tail * MS)},
                **{phase: base + extra.get(phase, 0.0) for phase, base in USUAL.items()},
            )
            for index in range(STEPS)
        ]
        for extra, tail in zip(ranks, tails, strict=True)
    ]


def points(
    ranks: list[list[StepRecord]],
    block: int = 64,
    *,
    counted: str | None = None,
    device: str = "cpu",
    hosts: Mapping[int, str] | None = None,
    **known: bool,
) -> dict[str, SyncPoint]:
    """The synchronisation points of ranks, folded in blocks; collectives as they were counted."""
    fold = LatenessFold(range(len(ranks)), **{"loop_waits": True, **known})
    schema = StepSchema(("tail_ns",), device)
    for first in range(0, STEPS, block):
        blocks = [block_of(steps[first : first + block], schema) for steps in ranks]
        fold.observe(blocks, counted)
    return {point.point: point for point in fold.points(hosts)}


NOTHING: Phases = {}
TWO, FOUR = [NOTHING] * 2, [NOTHING] * 4
ON_GPU = {"device": "cuda"}
PLAIN = {"loop_waits": False}
METRIC = {**PLAIN, "counted": "forward 1, backward 2"}
"""A metric is reduced in `training_step`."""
GATHER = {**PLAIN, "counted": "backward 2, other 1"}
"""A Trainer gathers token counts before forward, outside every phase."""
SHARDS = {**PLAIN, "counted": "backward 2", "tail": False}
"""FSDP: there is no tail, and the whole phase of the rank that waits is longer."""


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


LATE_20 = {"data_wait": 20.0}

PLANTED: dict[str, tuple[object, ...]] = {
    **{
        f"rank {rank} late in {phase} before backward": (
            simulate(on(2, rank, **{phase: 20}), TWO, noise_ms=0.2),
            {},
            {"backward": (rank, phase, 20), "loop": ()},
        )
        for rank in (0, 1)
        for phase in ("data_wait", "h2d", "forward", "backward", "callbacks")
    },
    **{
        f"rank {rank} late in {phase} after backward": (
            simulate(TWO, on(2, rank, **{phase: 20}), noise_ms=0.2),
            {},
            {"backward": (), "loop": (rank, phase, 20)},
        )
        for rank in (0, 1)
        for phase in ("optimizer", "callbacks", "other")
    },
    "ranks that are late at different points do not cancel": (
        simulate(on(2, 0, data_wait=20), on(2, 1, optimizer=20), noise_ms=0.2),
        {},
        {"backward": (0, "data_wait", 20), "loop": (1, "optimizer", 20)},
    ),
    "callbacks run on both sides of backward": (
        simulate(on(2, 0, data_wait=20), on(2, 0, callbacks=20), noise_ms=0.2),
        {},
        {"backward": (0, "data_wait", 20), "loop": (0, "callbacks", 20)},
    ),
    "late before, and after in no phase": (
        simulate(on(2, 0, callbacks=20), on(2, 0, unseen=20), noise_ms=0.2),
        {},
        {"backward": (0, "callbacks", 20), "loop": (0, None, 20)},
    ),
    "late before and after": (
        simulate(on(2, 0, callbacks=20), on(2, 0, optimizer=20), noise_ms=0.2),
        {},
        {"backward": (0, "callbacks", 20), "loop": (0, "optimizer", 20)},
    ),
    "that a fourth rank waits for three is no one's fault": (
        simulate([*[LATE_20] * 3, NOTHING], FOUR, noise_ms=0.2),
        {},
        {"backward": (), "loop": ()},
    ),
    "one of four": (
        simulate(on(4, 2, h2d=20), FOUR, noise_ms=0.2),
        {},
        {"backward": (2, "h2d", 20), "loop": ()},
    ),
    "two equal ranks": (simulate(TWO, TWO, noise_ms=0.2), {}, {"backward": (), "loop": ()}),
    "four equal ranks": (simulate(FOUR, FOUR, noise_ms=0.2), {}, {"backward": (), "loop": ()}),
    "a plain loop's delay after backward arrives at the next one": (
        simulate(on(2, 0, optimizer=20), TWO),
        PLAIN,
        {"backward": (0, "optimizer", 20)},
    ),
    # A slower device shows in the waits; where it runs ahead its tail is no time of the host.
    "no phase explains it": (
        job({}, {"backward": 20}, tails=(1, 21)),
        {},
        {"backward": (0, None, 20), "loop": ()},
    ),
    "no phase of a device's host explains it": (
        job({}, {}, tails=(1, 21)),
        ON_GPU,
        {"backward": (0, None, 20), "loop": ()},
    ),
    # The host of the other rank is not held up in backward: it waits for the same 20 ms later.
    **{
        f"{phase} on a device explains the wait in the loop too": (
            job({phase: 20}, {"loop": 20}, tails=(1, 21)),
            ON_GPU,
            {"backward": (0, phase, 20), "loop": (0, phase, 20)},
        )
        for phase in ("data_wait", "h2d", "forward", "backward", "callbacks")
    },
    "after backward on a device": (
        job({"optimizer": 20}, {"loop": 20}, tails=(1, 1)),
        ON_GPU,
        {"backward": (), "loop": (0, "optimizer", 20)},
    ),
    # 10 ms late in each of four: 30 ms before a fetch, 10 ms in the last one's all-reduce.
    **{
        f"{phase} of micro-batches, all but the last of which are waited for in the loop": (
            job({phase: 40}, {"loop": 30, "backward": 10}, tails=(1, 11), micro_batches=4),
            {},
            {"backward": (0, phase, 10), "loop": (0, phase, 30)},
        )
        for phase in ("data_wait", "h2d", "forward", "backward")
    },
    "waiting in backward is no cause of being late in the loop": (
        job({"forward": 20, "loop": 20}, {"backward": 20}, tails=(1, 21), micro_batches=4),
        {},
        {"backward": (0, "forward", 20), "loop": (1, None, 20)},
    ),
    # A broadcast holds rank 1 for rank 3: both arrive late, and one is slower in what it does.
    "a rank that was held for another is not to blame": (
        job({"backward": 8}, {"loop": 8}, {"backward": 8}, {"callbacks": 8}, tails=(9, 1, 9, 1)),
        {},
        {"backward": (3, "callbacks", 8), "loop": ()},
    ),
    "a metric that is reduced in forward": (
        job(LATE_20, {"forward": 20}, tails=(1, 1)),
        METRIC,
        {"forward": (0, "data_wait", 20), "backward": ()},
    ),
    "the same times without a collective": (
        job(LATE_20, {"forward": 20}, tails=(1, 1)),
        {**PLAIN, "counted": "backward 2"},
        {"backward": ()},
    ),
    "a collective that nobody waits for": (
        simulate(on(2, 0, data_wait=20), TWO),
        METRIC,
        {"backward": (0, "data_wait", 20)},
    ),
    "ranks that meet before forward, outside every phase": (
        job({"other": 20}, LATE_20, tails=(1, 1)),
        GATHER,
        {"backward": (), "other": (1, "data_wait", 20)},
    ),
    "a slower forward hides nobody there": (
        job({"other": 20, "forward": 12}, {**LATE_20, "backward": 12}, tails=(1, 13)),
        GATHER,
        {"backward": (0, "forward", 12), "other": (1, "data_wait", 20)},
    ),
    "what is slow after a gather is late at backward": (
        job({"backward": 20}, {"forward": 20}, tails=(21, 1)),
        GATHER,
        {"backward": (1, "forward", 20)},
    ),
    **{
        f"shards that are reduced in backward, after {phase}": (
            job({"backward": 20}, {phase: 20}, tails=(None, None)),
            SHARDS,
            {"backward": (1, phase, 20)},
        )
        for phase in ("data_wait", "forward", "callbacks", "optimizer")
    },
    # It may have computed or waited: nothing tells, or no collective was counted.
    "a slow backward without a tail is nobody's fault": (
        job({"backward": 20}, {}, tails=(None, None)),
        SHARDS,
        {},
    ),
    "shards whose collectives are counted elsewhere": (
        job({"backward": 20}, LATE_20, tails=(None, None)),
        {**SHARDS, "counted": "forward 2"},
        {},
    ),
    "another strategy than DDP has no tail": (
        job({"callbacks": 20}, {"loop": 20}, tails=(None, None)),
        {},
        {"loop": (0, "callbacks", 20)},
    ),
    "one rank alone": (simulate([NOTHING], [NOTHING]), {}, {}),
}
"""Steps of ranks, what is known of them, and at each point who is late, in which phase, by how
many milliseconds."""


@pytest.mark.parametrize("name", PLANTED)
def test_a_delay_is_found_where_it_is_waited_for_with_its_cause(name: str) -> None:
    """In every step, by as much as was planted."""
    ranks, known, expected = PLANTED[name]
    found = points(ranks, **known)

    assert list(found) == list(expected)
    for point, late in expected.items():
        assert who(found[point]) == {rank: cause for rank, cause, _ in filter(None, [late])}
        for each in found[point].late:
            late_s = pytest.approx(late[2] / 1e3, rel=0.05)
            assert (each.late_s, found[point].lost_s) == (late_s, late_s)
            assert each.cause is None or each.cause_s == late_s
            assert found[point].late_fraction == 1.0


def test_a_rank_that_is_late_every_other_step_is_not_named() -> None:
    """A coin flip is no straggler, though its time is lost all the same."""
    slow, swapped = (simulate(on(2, rank, forward=20), TWO) for rank in (0, 1))
    calm = points(simulate(TWO, TWO))["backward"]

    turns = points(mixed(slow, swapped, 2))["backward"]

    assert turns.late == ()
    assert turns.lost_s == pytest.approx(0.020, rel=0.02)
    assert (points(slow)["backward"].who, calm.who, turns.who) == ("same", "nobody", "rotating")


def test_the_transfer_is_what_even_the_last_rank_waits() -> None:
    """3 ms of all-reduce are nobody's delay, nor is what a meeting outside of phases takes."""
    backward = points(simulate(on(2, 0, forward=10), TWO, noise_ms=0, transfer_ms=3))["backward"]
    gathered = points(job({"other": 20}, LATE_20, tails=(1, 1)), **GATHER)["other"]

    assert backward.transfer_s == pytest.approx(0.003)
    assert backward.skew_s == pytest.approx(0.010, rel=0.002)
    assert backward.wait_s == (pytest.approx(0.003), pytest.approx(0.013, rel=0.01))
    assert gathered.transfer_s < 0.001


def test_a_delay_below_a_millisecond_or_a_twentieth_of_the_step_is_not_worth_a_name() -> None:
    """1.5 ms of a 38 ms step."""
    found = points(simulate(on(2, 0, forward=1.5), TWO, noise_ms=0))

    assert found["backward"].late == ()
    assert found["backward"].skew_s == pytest.approx(0.0015, rel=0.002)


def test_the_size_of_the_blocks_does_not_matter() -> None:
    """Constant memory, the same answer."""
    ranks = simulate(on(2, 0, forward=20), on(2, 1, callbacks=9))

    small, large = points(ranks, block=7), points(ranks, block=STEPS)

    for point, found in small.items():
        assert found.lost_s == pytest.approx(large[point].lost_s)
        assert who(found) == who(large[point])


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
    early: list[Phases] = [LATE_20, second, *[NOTHING] * others]
    ranks = simulate(early, [NOTHING] * len(early))
    (backward,) = points(ranks, hosts=dict(enumerate(hosts)), **PLAIN).values()

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
    assert (who(backward), backward.late_fraction) == ({2: "data_wait"}, 0.25)
    assert latest(backward).late_s == pytest.approx(0.060, rel=0.02)
    assert latest(backward).cause_s == pytest.approx(0.015, rel=0.02)
    assert backward.named_s == pytest.approx(0.015, rel=0.02)


@pytest.mark.parametrize("collectives", ["none", "", None, "loop 1.00", "data_wait 0.01"])
def test_ranks_that_were_counted_to_call_few_collectives_or_none_meet_at_backward_only(
    collectives: str | None,
) -> None:
    """As the probe writes it."""
    points = sync_points(loop_waits=False, collectives=collectives)

    more = (Phase.LOOP,) if collectives == "loop 1.00" else ()
    assert points == (Phase.BACKWARD, *more)
