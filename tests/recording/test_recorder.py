"""Every nanosecond of a fit belongs to one slot: each transition of the recorder, exactly."""

from collections.abc import Callable

import pytest
from support.live import Heard, Timeline, assert_tiles, micro_batch_done, phases_ms

from trainperf.core.phases import Gap, Phase, Tag


MOVES: dict[str, Callable[[Timeline], object]] = {
    "fetch": lambda line: line.recorder.boundary(),
    "batch": lambda line: micro_batch_done(line.recorder, complete=False),
    "update": lambda line: micro_batch_done(line.recorder, complete=True),
    "hooks": lambda line: line.recorder.last_hook_done(),
    "epoch": lambda line: line.recorder.epoch_ended(),
    "step": lambda line: line.step(1),
    "micro": lambda line: line.step(1, complete=False),
    "-": lambda line: line.recorder.leave(),
    ")": lambda line: line.recorder.leave(),
}
"""What a word of a script does.

A number lets so many milliseconds pass; `+forward` begins a phase, and `-` ends it; `(checkpoint`
begins a gap, and `)` ends it; `=validation` makes a gap the ground state, `<validation` from where
the last training action ended.
"""


def played(script: str) -> Timeline:
    """A fit of these moves, which tile it."""
    line = Timeline()
    for word in script.split():
        name = word[1:].upper()
        if word in MOVES:
            MOVES[word](line)
        elif word.startswith("+"):
            line.recorder.enter(Phase[name])
        elif word.startswith("("):
            line.recorder.enter_gap(Gap[name])
        elif word[0] in "=<":
            line.recorder.rest(Gap[name], since_last=word[0] == "<")
        else:
            line.wait(float(word))
    assert_tiles(line.end())
    return line


ONE = {"forward": 1.0}
PHASES_OF = {
    "what no phase brackets is other": (
        "fetch 3 +forward 5 - 2 update",
        [{"forward": 5, "other": 5}],
    ),
    "a nested phase pauses the one around it": (
        "fetch +optimizer 1 +forward 10 - 1 +backward 20 - 2 - update",
        [{"forward": 10, "backward": 20, "optimizer": 4}],
    ),
    "a phase nested in itself goes on": (
        "fetch +callbacks 1 +callbacks 2 - 4 - update",
        [{"callbacks": 7}],
    ),
    "after the last hook time is the loop's own": ("step 4 step", [{**ONE, "loop": 4}, ONE]),
    "a loader of unknown length fetches ahead": (
        "fetch +data_wait 2 - fetch +data_wait 3 - update",
        [{"data_wait": 5}],
    ),
    "frames that an exception left open end at the next boundary": (
        "fetch +optimizer +forward 1 update fetch 2 - - 4 update",
        [ONE, {"other": 6}],
    ),
    "a checkpoint in a callback is cut out of the step": (
        "fetch +callbacks 1 (checkpoint 50 ) 2 - update",
        [{"callbacks": 3}],
    ),
    "a step that ends inside a gap takes the gap out": (
        "fetch (checkpoint 5 update hooks 2 ) 1 step",
        [{"loop": 3}, ONE],
    ),
    "a gap that is announced begins there": (
        "step 40 =validation 10 step",
        [{**ONE, "loop": 40}, ONE],
    ),
    "a gap can begin where the last training action ended": (
        "step 40 <validation 10 step",
        [ONE, ONE],
    ),
    "micro-batches of a group are one step": ("micro micro step " * 2, [{"forward": 3}] * 2),
}


@pytest.mark.parametrize("case", PHASES_OF)
def test_a_moment_belongs_to_the_innermost_phase(case: str) -> None:
    """And to no gap."""
    script, expected = PHASES_OF[case]

    assert [phases_ms(step) for step in played(script).steps] == expected


GAPS_OF = {
    "before the first fetch": ("30 step", [("startup", 0, 30, -1)]),
    "a checkpoint inside validation is cut out of it": (
        "step (validation 10 (checkpoint 3 ) 5 ) step",
        [("checkpoint", 11, 3, 0), ("validation", 1, 15, 0)],
    ),
    "a checkpoint inside a callback": (
        "fetch +callbacks 1 (checkpoint 50 ) 2 - update",
        [("checkpoint", 1, 50, 0)],
    ),
    "a gap nested in itself is one, from the outer start": (
        "step (validation 2 (validation 3 ) 4 ) step",
        [("validation", 1, 9, 0)],
    ),
    "from the last training action": (
        "step 40 <validation 10 step",
        [("validation", 1, 50, 0)],
    ),
    "from where it is announced": ("step 40 =validation 10 step", [("validation", 41, 10, 0)]),
    "a fetch that brings no batch belongs to the gap that follows": (
        "step fetch +data_wait 6 - epoch 4 step",
        [("epoch_boundary", 1, 10, 0)],
    ),
    "a gap in such a fetch follows the last step there was": (
        "step fetch (checkpoint 2 ) epoch step",
        [("checkpoint", 1, 2, 0)],
    ),
    "one that was left open ends at the next boundary": (
        "step (checkpoint 5 step",
        [("checkpoint", 1, 5, 0)],
    ),
    "phases inside it are gap": (
        "step (validation +forward 7 - ) step",
        [("validation", 1, 7, 0)],
    ),
    "one in which a step ends": (
        "fetch (checkpoint 5 update hooks 2 ) 1 step",
        [("checkpoint", 0, 5, 0)],
    ),
}


@pytest.mark.parametrize("case", GAPS_OF)
def test_a_gap_has_its_start_its_length_and_the_step_before_it(case: str) -> None:
    """By name, in milliseconds."""
    script, expected = GAPS_OF[case]

    assert [gap for gap in played(script).gaps_ms() if gap[2]][: len(expected)] == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("step step epoch step step", [Tag.FIRST_IN_EPOCH, 0] * 2),
        ("step micro epoch", [Tag.FIRST_IN_EPOCH, Tag.PARTIAL_GROUP]),
        ("micro micro step micro step", [Tag.FIRST_IN_EPOCH, 0]),
        ("step (checkpoint 5 step", [Tag.FIRST_IN_EPOCH, Tag.AFTER_CHECKPOINT]),
        # Amid a group it is the open step that goes on with cold caches.
        (
            "step micro =validation step =validation step step",
            [Tag.FIRST_IN_EPOCH, Tag.AFTER_VALIDATION, Tag.AFTER_VALIDATION, 0],
        ),
        # The step after validation is the one in which a batch runs.
        (
            "step =validation 1 fetch epoch step",
            [Tag.FIRST_IN_EPOCH, Tag.AFTER_VALIDATION | Tag.FIRST_IN_EPOCH],
        ),
    ],
)
def test_a_step_is_tagged_by_what_came_before_it(script: str, expected: list[int]) -> None:
    """A group that is short has done less work than the others, and says so too."""
    assert [step.tags for step in played(script).steps] == expected


def test_switches_are_counted_for_the_step_they_cost() -> None:
    """What brackets cost is calibrated once and multiplied."""
    line = Timeline()
    line.step(1)
    line.step(1)
    line.spend(Phase.CALLBACKS, 1)
    line.step(1)
    line.step(1)
    line.end()

    assert [step.switches for step in line.steps[1:3]] == [4, 3]


def test_a_fit_that_was_stopped_already_stops_once() -> None:
    """Who listens is told that it began and that it stopped, not that it goes on when it ends."""
    line, told = Timeline(), list[bool]()
    line.recorder.on_gap = told.append
    line.step(1)
    line.recorder.rest(Gap.SHUTDOWN)
    line.wait(4)
    line.end()

    assert told == [False, True]
    assert line.gaps_ms()[-1] == ("shutdown", 1.0, 4.0, 0)
    assert_tiles(line)


def test_a_listener_hears_phases_gaps_and_boundaries() -> None:
    """That is how a trace gets its marks."""
    line = Timeline()
    line.recorder.listener = heard = Heard()
    line.step(1)
    line.recorder.enter_gap(Gap.CHECKPOINT)
    line.recorder.leave()
    line.recorder.epoch_ended()

    assert heard.told == [
        "cleared",
        f"entered {int(Phase.FORWARD)}",
        "left",
        "cleared",
        f"entered {int(Gap.CHECKPOINT)}",
        "left",
        "cleared",
    ]
