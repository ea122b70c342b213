"""Whatever an adapter calls, in whatever order: steps and gaps tile the fit."""

from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.live import MS, Timeline, assert_tiles, micro_batch_done

from trainperf.core.phases import GAPS, PHASES, Gap, Phase, Tag
from trainperf.recording.timeline import HookBracket


Operation = Callable[[Timeline], object]


MOVES: list[tuple[str, Operation]] = [
    ("boundary", lambda line: line.recorder.boundary()),
    ("leave", lambda line: line.recorder.leave()),
    ("last_hook_done", lambda line: line.recorder.last_hook_done()),
    ("micro_batch", lambda line: micro_batch_done(line.recorder, complete=False)),
    ("complete", lambda line: micro_batch_done(line.recorder, complete=True)),
    ("epoch_ended", lambda line: line.recorder.epoch_ended()),
    ("unwind", lambda line: line.recorder.unwind(min(1, line.recorder.depth))),
    ("end", lambda line: line.recorder.end()),
]


def entering(phase: Phase) -> Operation:
    """Begin a phase."""
    return lambda line: line.recorder.enter(phase)


def entering_gap(gap: Gap) -> Operation:
    """Begin a gap."""
    return lambda line: line.recorder.enter_gap(gap)


def resting(gap: Gap, *, since_last: bool) -> Operation:
    """Make a gap the ground state."""
    return lambda line: line.recorder.rest(gap, since_last=since_last)


# Named, so that a failing script can be read.
PHASE_MOVES = st.sampled_from([(f"enter {p.label}", entering(p)) for p in PHASES])
GAP_MOVES = st.sampled_from([(f"enter gap {g.label}", entering_gap(g)) for g in GAPS])
REST_MOVES = st.sampled_from(
    [
        (f"rest {gap.label} {since_last=}", resting(gap, since_last=since_last))
        for gap in (Gap.VALIDATION, Gap.EPOCH_BOUNDARY, Gap.SHUTDOWN, Gap.SANITY_CHECK)
        for since_last in (False, True)
    ]
)
ANY_MOVE = st.one_of(st.sampled_from(MOVES), st.sampled_from(MOVES), PHASE_MOVES, GAP_MOVES)
SCRIPT = st.lists(
    st.tuples(st.one_of(ANY_MOVE, ANY_MOVE, REST_MOVES), st.integers(0, 5)), max_size=60
)


@settings(max_examples=300, deadline=None)
@given(script=SCRIPT, tick_ns=st.sampled_from([0, 0, 1]))
def test_any_script_tiles_the_fit(
    script: list[tuple[tuple[str, Operation], int]], tick_ns: int
) -> None:
    """Unbalanced brackets, gaps in gaps, ends in the middle; and every tag has a cause."""
    line = Timeline(tick_ns=tick_ns)
    for (_, move), passing_ms in script:
        line.wait(passing_ms)
        move(line)
    line.end()

    assert_tiles(line)
    assert all(step.micro_batches for step in line.steps)
    for tag, gap in ((Tag.AFTER_VALIDATION, "validation"), (Tag.AFTER_CHECKPOINT, "checkpoint")):
        tagged = [step for step in line.steps if step.tags & tag]
        assert len(tagged) <= sum(record.gap == gap for record in line.gaps)
    partial = [step for step in line.steps if step.tags & Tag.PARTIAL_GROUP]
    assert len(partial) <= sum(name in {"epoch_ended", "end"} for (name, _), _ in script) + 1
    assert all(step.tags & Tag.FIRST_IN_EPOCH for step in line.steps[:1])


def test_the_total_of_a_bracket_leaves_out_what_is_nested() -> None:
    """A user's hook is not charged with the checkpoint or the forward it runs."""
    line = Timeline()
    hook = HookBracket(line.recorder, Phase.CALLBACKS)
    line.recorder.boundary()
    for _ in range(2):
        with hook:
            line.wait(1)
            line.spend(Phase.FORWARD, 10)
            line.recorder.enter_gap(Gap.CHECKPOINT)
            line.wait(100)
            line.recorder.leave()
            line.wait(2)

    assert hook.total_ns == 6_000_000


def test_a_bracket_inside_a_gap_has_no_total() -> None:
    """Hooks that run during validation are validation."""
    line = Timeline()
    hook = HookBracket(line.recorder, Phase.CALLBACKS)
    line.recorder.boundary()
    line.recorder.rest(Gap.VALIDATION)
    with hook:
        line.wait(5)

    assert hook.total_ns == 0


def test_a_bracket_lets_an_error_through() -> None:
    """And has ended its phase."""
    line = Timeline()
    line.recorder.boundary()
    with pytest.raises(ZeroDivisionError), HookBracket(line.recorder, Phase.FORWARD):
        _ = 1 / 0

    assert line.recorder.slot == Phase.OTHER


def test_a_gap_that_was_only_left_is_not_lost() -> None:
    """A frame too many is popped: the gap's time is told when the fit ends."""
    line = Timeline()
    line.step(1)
    line.recorder.enter_gap(Gap.CHECKPOINT)
    line.wait(5)
    line.recorder.leave()
    line.step(1)
    line.end()

    assert sum(gap.duration_ns for gap in line.gaps if gap.gap == "checkpoint") == 5 * MS
    assert sum(map(sum, (step.host_ns for step in line.steps))) == 2 * MS
