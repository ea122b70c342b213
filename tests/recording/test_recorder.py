"""Every nanosecond of a fit belongs to one slot: each transition of the recorder, exactly."""

import pytest
from support.live import MS, Timeline, assert_tiles, micro_batch_done, phases_ms

from trainperf.core.phases import Gap, Phase, Tag
from trainperf.recording.timeline import leaving_to


def test_what_no_phase_brackets_is_other() -> None:
    """A step's time outside all phases has a place of its own."""
    line = Timeline()
    line.recorder.boundary()
    line.wait(3)
    line.spend(Phase.FORWARD, 5)
    line.wait(2)
    micro_batch_done(line.recorder, complete=True)
    line.end()

    assert phases_ms(line.steps[0]) == {"forward": 5, "other": 5}
    assert_tiles(line)


def test_a_nested_phase_pauses_the_one_around_it() -> None:
    """Lightning runs forward and backward inside the optimizer's step."""
    line = Timeline()
    line.recorder.boundary()
    line.recorder.enter(Phase.OPTIMIZER)
    line.wait(1)
    line.spend(Phase.FORWARD, 10)
    line.wait(1)
    line.spend(Phase.BACKWARD, 20)
    line.wait(2)
    line.recorder.leave()
    micro_batch_done(line.recorder, complete=True)
    line.end()

    assert phases_ms(line.steps[0]) == {"forward": 10, "backward": 20, "optimizer": 4}


def test_a_phase_nested_in_itself_goes_on() -> None:
    """Both brackets are the same phase; nothing is counted twice."""
    line = Timeline()
    line.recorder.boundary()
    line.recorder.enter(Phase.CALLBACKS)
    line.wait(1)
    line.spend(Phase.CALLBACKS, 2)
    line.wait(4)
    line.recorder.leave()
    micro_batch_done(line.recorder, complete=True)
    line.end()

    assert phases_ms(line.steps[0]) == {"callbacks": 7}
    assert_tiles(line)


@pytest.mark.parametrize("around", [None, Phase.CALLBACKS, Gap.VALIDATION])
def test_a_wait_is_left_for_a_phase_at_one_moment(around: Phase | Gap | None) -> None:
    """As in two moments: what else is open ends with it, and a gap goes on."""
    line = Timeline()
    recorder = line.recorder
    recorder.boundary()
    if isinstance(around, Gap):
        recorder.enter_gap(around)
    elif around is not None:
        recorder.enter(around)
    recorder.enter(Phase.DATA_WAIT)
    line.wait(3)
    leaving_to(recorder, Phase.FORWARD)()
    line.wait(5)
    inside = recorder.inside_gap
    while recorder.depth:
        recorder.leave_gap()
    micro_batch_done(recorder, complete=True)
    line.end()

    assert inside is isinstance(around, Gap)
    assert phases_ms(line.steps[0]) == ({} if inside else {"data_wait": 3, "forward": 5})
    assert_tiles(line)


def test_time_before_the_first_fetch_is_startup() -> None:
    """And it precedes step 0."""
    line = Timeline()
    line.wait(30)
    line.step(1)
    line.end()

    assert line.gaps_ms()[0] == ("startup", 0, 30, -1)
    assert line.steps[0].start_ns == 30 * MS


def test_after_the_last_hook_time_is_the_loops_own() -> None:
    """Up to the next fetch."""
    line = Timeline()
    line.step(1)
    line.wait(4)
    line.step(1)
    line.end()

    assert phases_ms(line.steps[0]) == {"forward": 1, "loop": 4}
    assert phases_ms(line.steps[1]) == {"forward": 1}


def test_inside_a_gap_phases_are_gap() -> None:
    """Validation runs forward too, and that is not the step's."""
    line = Timeline()
    line.step(1)
    line.recorder.enter_gap(Gap.VALIDATION)
    line.spend(Phase.FORWARD, 7)
    line.recorder.leave_gap()
    line.step(1)
    line.end()

    assert phases_ms(line.steps[0]) == {"forward": 1}
    assert ("validation", 1, 7, 0) in line.gaps_ms()
    assert_tiles(line)


def test_a_checkpoint_inside_validation_is_cut_out_of_it() -> None:
    """One stack holds phases and gaps; a nanosecond is in one of them."""
    line = Timeline()
    line.step(1)
    line.recorder.enter_gap(Gap.VALIDATION)
    line.wait(10)
    line.recorder.enter_gap(Gap.CHECKPOINT)
    line.wait(3)
    line.recorder.leave_gap()
    line.wait(5)
    line.recorder.leave_gap()
    line.step(1)
    line.end()

    assert line.gaps_ms()[1:3] == [("checkpoint", 11, 3, 0), ("validation", 1, 15, 0)]
    assert_tiles(line)


def test_a_checkpoint_inside_a_callback_is_cut_out_of_the_step() -> None:
    """The callback goes on after it."""
    line = Timeline()
    line.recorder.boundary()
    line.recorder.enter(Phase.CALLBACKS)
    line.wait(1)
    line.recorder.enter_gap(Gap.CHECKPOINT)
    line.wait(50)
    line.recorder.leave_gap()
    line.wait(2)
    line.recorder.leave()
    micro_batch_done(line.recorder, complete=True)
    line.end()

    assert phases_ms(line.steps[0]) == {"callbacks": 3}
    assert line.gaps_ms()[1] == ("checkpoint", 1, 50, 0)
    assert_tiles(line)


def test_a_gap_nested_in_itself_is_one_gap() -> None:
    """A validation that calls validation: one record, from the outer start."""
    line = Timeline()
    line.step(1)
    line.recorder.enter_gap(Gap.VALIDATION)
    line.wait(2)
    line.recorder.enter_gap(Gap.VALIDATION)
    line.wait(3)
    line.recorder.leave_gap()
    line.wait(4)
    line.recorder.leave_gap()
    line.step(1)
    line.end()

    assert line.gaps_ms()[1] == ("validation", 1, 9, 0)
    assert_tiles(line)


def test_a_gap_can_begin_where_the_last_training_action_ended() -> None:
    """Nothing announces that validation is about to build its loader."""
    line = Timeline()
    line.step(1)
    line.wait(40)
    line.recorder.rest(Gap.VALIDATION, since_last=True)
    line.wait(10)
    line.step(1)
    line.end()

    assert phases_ms(line.steps[0]) == {"forward": 1}
    assert line.gaps_ms()[1] == ("validation", 1, 50, 0)
    assert_tiles(line)


def test_a_gap_that_is_announced_begins_there() -> None:
    """Without `since_last` the time before stays where it was."""
    line = Timeline()
    line.step(1)
    line.wait(40)
    line.recorder.rest(Gap.VALIDATION)
    line.wait(10)
    line.step(1)
    line.end()

    assert phases_ms(line.steps[0]) == {"forward": 1, "loop": 40}
    assert line.gaps_ms()[1] == ("validation", 41, 10, 0)


def test_a_step_is_closed_when_the_next_batch_is_asked_for() -> None:
    """Not when its optimizer was stepped: its logging is its own."""
    line = Timeline()
    line.step(1)

    assert line.recorder.awaits_batch
    line.take()
    assert line.steps == []

    line.recorder.boundary()
    line.take()
    assert [step.index for step in line.steps] == [0]
    assert not line.recorder.awaits_batch


def test_micro_batches_of_a_group_are_one_step() -> None:
    """A fetch opens a step only when the previous one is complete."""
    line = Timeline()
    for _ in range(2):
        line.step(1, complete=False)
        line.step(1, complete=False)
        line.step(1, complete=True)
    line.end()

    assert [step.micro_batches for step in line.steps] == [3, 3]
    assert [phases_ms(step) for step in line.steps] == [{"forward": 3}] * 2
    assert [step.tags & Tag.PARTIAL_GROUP for step in line.steps] == [0, 0]


def test_a_short_last_group_is_tagged() -> None:
    """It has done less work than the others."""
    line = Timeline()
    line.step(1, complete=True)
    line.step(1, complete=False)
    line.recorder.epoch_ended()
    line.end()

    assert [step.tags & Tag.PARTIAL_GROUP for step in line.steps] == [0, Tag.PARTIAL_GROUP]
    assert_tiles(line)


def test_a_fetch_that_brings_no_batch_opens_no_step() -> None:
    """Its time belongs to the gap that follows, which began with it."""
    line = Timeline()
    line.step(1)
    line.recorder.boundary()
    line.spend(Phase.DATA_WAIT, 6)
    line.recorder.epoch_ended()
    line.wait(4)
    line.step(1)
    line.end()

    assert len(line.steps) == 2
    assert line.gaps_ms()[1] == ("epoch_boundary", 1, 10, 0)
    assert line.steps[1].start_ns == 11 * MS
    assert_tiles(line)


def test_tags_of_a_step_that_was_none_go_to_the_next() -> None:
    """The step after validation is the one in which a batch runs."""
    line = Timeline()
    line.step(1)
    line.recorder.rest(Gap.VALIDATION)
    line.wait(1)
    line.recorder.boundary()
    line.recorder.epoch_ended()
    line.step(1)
    line.end()

    assert line.steps[1].tags == Tag.AFTER_VALIDATION | Tag.FIRST_IN_EPOCH


def test_a_checkpoint_during_a_fetch_that_brings_nothing_follows_the_last_step() -> None:
    """`after_step` names no step that never was."""
    line = Timeline()
    line.step(1)
    line.recorder.boundary()
    line.recorder.enter_gap(Gap.CHECKPOINT)
    line.wait(2)
    line.recorder.leave_gap()
    line.recorder.epoch_ended()
    line.step(1)
    line.end()

    assert ("checkpoint", 1, 2, 0) in line.gaps_ms()
    assert_tiles(line)


def test_a_loader_that_is_asked_twice_opens_one_step() -> None:
    """A loader of unknown length fetches ahead."""
    line = Timeline()
    line.recorder.boundary()
    line.spend(Phase.DATA_WAIT, 2)
    line.recorder.boundary()
    line.spend(Phase.DATA_WAIT, 3)
    micro_batch_done(line.recorder, complete=True)
    line.end()

    assert [phases_ms(step) for step in line.steps] == [{"data_wait": 5}]
    assert_tiles(line)


def test_frames_an_exception_left_open_end_at_the_next_boundary() -> None:
    """Manual optimization starts an action and never stops it when the step raises."""
    line = Timeline()
    line.recorder.boundary()
    line.recorder.enter(Phase.OPTIMIZER)
    line.recorder.enter(Phase.FORWARD)
    line.wait(1)
    micro_batch_done(line.recorder, complete=True)
    line.recorder.boundary()
    line.wait(2)
    line.recorder.leave()
    line.recorder.leave()
    line.wait(4)
    micro_batch_done(line.recorder, complete=True)
    line.end()

    assert [phases_ms(step) for step in line.steps] == [{"forward": 1}, {"other": 6}]
    assert_tiles(line)


def test_a_gap_left_open_ends_at_the_next_boundary() -> None:
    """A checkpoint that raised."""
    line = Timeline()
    line.step(1)
    line.recorder.enter_gap(Gap.CHECKPOINT)
    line.wait(5)
    line.step(1)
    line.end()

    assert line.gaps_ms()[1] == ("checkpoint", 1, 5, 0)
    assert line.steps[1].tags & Tag.AFTER_CHECKPOINT
    assert_tiles(line)


def test_a_step_that_ends_inside_a_gap_takes_the_gap_out() -> None:
    """`end_step()` inside `phase("checkpoint")`: the gap is over, and is not the loop's time."""
    line = Timeline()
    line.recorder.boundary()
    line.recorder.enter_gap(Gap.CHECKPOINT)
    line.wait(5)
    micro_batch_done(line.recorder, complete=True)
    line.recorder.last_hook_done()
    line.wait(2)
    line.recorder.leave_gap()
    line.wait(1)
    line.step(1)
    line.end()

    assert [gap.gap for gap in line.gaps] == ["startup", "checkpoint", "shutdown"]
    assert phases_ms(line.steps[0]) == {"loop": 3}
    assert_tiles(line)


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_fit_can_end_in_any_state(depth: int) -> None:
    """An exception comes when it comes."""
    line = Timeline()
    line.recorder.boundary()
    for _ in range(depth):
        line.recorder.enter(Phase.FORWARD)
        line.wait(1)
        line.recorder.enter_gap(Gap.CHECKPOINT)
        line.wait(2)
    line.end()

    assert line.fit_ns == 3 * depth * MS
    assert line.steps == []
    assert_tiles(line)


def test_ending_twice_adds_only_what_came_between() -> None:
    """The second end is later, and the gaps still tile it."""
    line = Timeline()
    line.step(1)
    line.end()
    line.wait(3)
    line.end()

    assert line.fit_ns == 4 * MS
    assert_tiles(line)


def test_the_first_step_of_each_epoch_is_tagged() -> None:
    """Workers are started there."""
    line = Timeline()
    for _ in range(2):
        line.step(1)
        line.step(1)
        line.recorder.epoch_ended()
    line.end()

    assert [step.tags for step in line.steps] == [Tag.FIRST_IN_EPOCH, 0] * 2


def test_validation_in_the_middle_of_a_group_tags_the_open_step() -> None:
    """It goes on with cold caches; a complete step leaves the tag to the next."""
    line = Timeline()
    line.step(1)
    line.step(1, complete=False)
    line.recorder.rest(Gap.VALIDATION)
    line.step(1, complete=True)
    line.recorder.rest(Gap.VALIDATION)
    line.step(1)
    line.step(1)
    line.end()

    found = [bool(step.tags & Tag.AFTER_VALIDATION) for step in line.steps]
    assert found == [False, True, True, False]


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


def test_one_moment_is_read_once() -> None:
    """A step begins where the one before ended, also on a clock that moves while it is read."""
    line = Timeline(tick_ns=7)
    line.step(1)
    line.step(1)
    line.recorder.enter(Phase.FORWARD)
    line.step(1)
    line.recorder.rest(Gap.VALIDATION)
    line.step(1)
    line.recorder.epoch_ended()
    line.step(1)
    line.end()

    assert_tiles(line)


class Heard:
    """Keeps what a listener is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def entered(self, slot: int) -> None:
        """A phase or gap began."""
        self.told.append(f"entered {slot}")

    def left(self) -> None:
        """The innermost one ended."""
        self.told.append("left")

    def cleared(self) -> None:
        """Whatever was open is over."""
        self.told.append("cleared")


def test_a_listener_hears_phases_gaps_and_boundaries() -> None:
    """That is how a trace gets its marks."""
    line = Timeline()
    line.recorder.listener = heard = Heard()
    line.step(1)
    line.recorder.enter_gap(Gap.CHECKPOINT)
    line.recorder.leave_gap()
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


def test_a_listener_changes_no_number() -> None:
    """The same fit with and without one, on a clock that moves while it is read."""
    plain, heard = Timeline(tick_ns=3), Timeline(tick_ns=3)
    heard.recorder.listener = Heard()
    for line in (plain, heard):
        line.step(1)
        line.step(1)
        line.recorder.epoch_ended()
        line.end()

    assert [step.host_ns for step in heard.steps] == [step.host_ns for step in plain.steps]
    assert heard.gaps_ms() == plain.gaps_ms()
