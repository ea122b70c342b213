"""What is captured of a timeline, which steps are tagged, and what it does to the accounts."""

from pathlib import Path
from typing import Any

import pytest
import torch
from support.live import MS, micro_batch_done
from support.profiler import NEVER, Captured, schedule, torch_profiles
from torch.profiler import ProfilerActivity, profile

from trainperf.core.phases import Gap, Phase
from trainperf.recording.profiling import profiler_probe
from trainperf.recording.profiling.options import ScheduledProfile
from trainperf.recording.profiling.tracer import Marks, Tracer


def foreign() -> profile:
    """A profiler of the user's own."""
    return profile(activities=[ProfilerActivity.CPU])


def test_every_cycle_leaves_a_trace_of_exactly_its_active_steps(tmp_path: Path) -> None:
    """Two cycles, two files; warm-up steps are in neither."""
    run = Captured(tmp_path, schedule(repeat=2)).train(30).finish()

    assert run.names() == [
        "rank0-step000007-3steps.trace.json.gz",
        "rank0-step000017-3steps.trace.json.gz",
    ]
    assert [trace.steps() for trace in run.traces()] == [[7, 8, 9], [17, 18, 19]]


def test_numbers_go_on_from_the_optimizer_steps_before_this_fit(tmp_path: Path) -> None:
    """In the marks, in the name and in the facts; the schedule counts from the fit's start."""
    run = Captured(tmp_path, schedule(), offset=1000).train(12).finish()

    (trace,) = run.traces()
    assert run.names() == ["rank0-step001007-3steps.trace.json.gz"]
    assert trace.steps() == [1007, 1008, 1009]
    assert trace.facts == {
        "first_step": 1007,
        "first_index": 7,
        "complete_steps": 3,
        "ended_by": None,
    }


def test_a_capture_may_begin_with_the_first_step_and_cycles_may_touch(tmp_path: Path) -> None:
    """Without a step to wait, the end of one cycle is the beginning of the next."""
    run = Captured(tmp_path, schedule(wait=0, warmup=1, active=2, repeat=2)).train(8).finish()

    assert [trace.steps() for trace in run.traces()] == [[1, 2], [4, 5]]


def test_phases_are_marked_inside_the_steps_they_belong_to(tmp_path: Path) -> None:
    """In order, each once; operators lie inside the phase that ran them."""
    run = Captured(tmp_path, schedule(active=2)).train(12).finish()

    (trace,) = run.traces()
    assert [trace.phases(step) for step in (7, 8)] == [["data_wait", "forward", "loop"]] * 2
    forwards = [span for span in trace.spans if span[0] == "trainperf::forward"]
    operators = [span for span in trace.spans if span[0] == "aten::mm"]
    inside = [
        begin < operator_begin and operator_end < end
        for (_, begin, end), (_, operator_begin, operator_end) in zip(
            forwards, operators, strict=True
        )
    ]
    assert inside == [True, True]


def test_a_frame_that_is_left_twice_does_no_harm(tmp_path: Path) -> None:
    """Manual optimization may leave more than it entered; the marks stay sound."""
    run = Captured(tmp_path, schedule(active=1)).train(7)
    run.recorder.boundary()
    run.recorder.leave()
    run.micro_batch(complete=True)
    run.train(1).finish()

    assert run.guard.faults == {}
    assert run.traces()[0].phases(7) == ["data_wait", "forward", "loop"]


def test_a_capture_counts_optimizer_steps_not_micro_batches(tmp_path: Path) -> None:
    """One mark over all micro-batches of a step."""
    run = Captured(tmp_path, schedule(active=2)).train(12, micro_batches=3).finish()

    (trace,) = run.traces()
    assert trace.steps() == [7, 8]
    assert trace.phases(7) == ["data_wait", "forward", "loop"] * 3


def test_warm_up_traced_and_dump_steps_are_tagged_and_no_others(tmp_path: Path) -> None:
    """The step after the dump finds cold caches and an empty queue."""
    run = Captured(tmp_path, schedule(repeat=2, wait=7)).train(40).finish()

    assert run.profiled() == [*range(7, 13), *range(19, 25)]


def test_nothing_listens_to_phases_outside_traced_steps(tmp_path: Path) -> None:
    """Between captures, and while warming up, a phase costs what it always does."""
    run = Captured(tmp_path, schedule())
    listened = []
    for step in range(14):
        run.recorder.boundary()
        if run.recorder.listener is not None:
            listened.append(step)
        run.train(1)
        run.recorder.boundary()

    assert listened == [7, 8, 9]


def test_writing_is_a_gap_and_in_no_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All steps are as long as they are without a capture; the gap has the planted 40 ms."""
    run = Captured(tmp_path, schedule())
    write = profiler_probe.write_trace

    def slow_disk(*trace: Any) -> Path | None:
        run.wait(40)
        return write(*trace)

    monkeypatch.setattr(profiler_probe, "write_trace", slow_disk)
    run.train(14).finish()

    assert {sum(step.host_ns) for step in run.steps} == {6 * MS}
    dumps = [gap for gap in run.gaps if gap.gap == "profiler_dump"]
    assert [(gap.after_step, gap.duration_ns) for gap in dumps] == [
        (4, 0),
        (6, 0),
        (9, 40 * MS),
    ]
    assert run.attributed_ns() == run.fit_ns == 14 * 6 * MS + 40 * MS


def test_validation_ends_a_capture_and_the_complete_steps_are_kept(tmp_path: Path) -> None:
    """No operator of the validation is in the trace; that it is short is said."""
    run = Captured(tmp_path, schedule()).train(9)
    run.validate()
    listens = run.recorder.listener is not None
    run.train(5).finish()

    (trace,) = run.traces()
    assert trace.steps() == [7, 8]
    assert (trace.facts["complete_steps"], trace.facts["ended_by"]) == (2, "validation")
    assert "aten::cumsum" not in trace.names
    assert not listens
    assert run.names() == ["rank0-step000007-2steps.trace.json.gz"]
    assert run.probe.notes() == {
        "captures": "rank0-step000007-2steps.trace.json.gz",
        "captures_short": "rank0-step000007-2steps.trace.json.gz: 2 of 3 steps, since validation "
        "began",
    }
    assert run.profiled() == [5, 6, 7, 8, 9]


def test_validation_right_after_the_last_step_leaves_nothing_out(tmp_path: Path) -> None:
    """The trace ends there, with all its steps, before the boundary would have come."""
    run = Captured(tmp_path, schedule()).train(10)
    run.validate()
    run.train(3).finish()

    (trace,) = run.traces()
    assert trace.steps() == [7, 8, 9]
    assert "aten::cumsum" not in trace.names
    assert "captures_short" not in run.probe.notes()


def test_validation_while_warming_up_changes_nothing(tmp_path: Path) -> None:
    """What is thrown away may hold anything."""
    run = Captured(tmp_path, schedule()).train(6)
    run.validate()
    run.train(6).finish()

    assert [trace.steps() for trace in run.traces()] == [[7, 8, 9]]


def test_a_capture_cut_before_its_first_step_is_complete_is_begun_anew(tmp_path: Path) -> None:
    """Validation between the micro-batches of the first step: it warms up again after it."""
    run = Captured(tmp_path, schedule()).train(7, micro_batches=2)
    run.micro_batch(complete=False)
    run.validate()
    run.micro_batch(complete=True)
    run.train(8, micro_batches=2).finish()

    (trace,) = run.traces()
    assert trace.steps() == [10, 11, 12]
    assert run.profiled() == [*range(5, 14)]
    assert run.attributed_ns() == run.fit_ns


def test_a_capture_that_succeeded_wipes_the_slate_clean(tmp_path: Path) -> None:
    """Every cycle may be begun anew as often as the first."""
    run = Captured(tmp_path, schedule(wait=0, warmup=1, active=1, repeat=0))
    for _ in range(8):
        run.train(1)
        run.micro_batch(complete=False)
        run.validate()
        run.micro_batch(complete=True)
        run.train(1)
    run.finish()

    assert len(run.names()) > 3
    assert "captures_cut" not in run.probe.notes()


def test_it_gives_up_where_validation_is_in_every_step(tmp_path: Path) -> None:
    """And says why there is no trace."""
    run = Captured(tmp_path, schedule())
    for _ in range(30):
        run.micro_batch(complete=False)
        run.validate()
        run.micro_batch(complete=True)
    run.finish()

    assert run.names() == []
    sentence = "nothing captured: validation began 3 times before one step was complete"
    assert run.probe.notes() == {"captures_cut": sentence}
    assert run.attributed_ns() == run.fit_ns


def test_an_epoch_boundary_is_marked_and_in_no_step(tmp_path: Path) -> None:
    """The capture goes on in the next epoch."""
    run = Captured(tmp_path, schedule()).train(9)
    run.recorder.epoch_ended()
    torch.zeros(3).cumsum(0)
    run.wait(7)
    run.train(4).finish()

    (trace,) = run.traces()
    assert trace.steps() == [7, 8, 9]
    ((_, begin, end),) = [s for s in trace.spans if s[0] == "trainperf::epoch_boundary"]
    ((_, at, _),) = [s for s in trace.spans if s[0] == "aten::cumsum"]
    marks = [s for s in trace.spans if s[0].startswith("ProfilerStep#")]
    assert begin < at < end
    assert all(t1 <= begin or end <= t0 for _, t0, t1 in marks)


def test_a_checkpoint_inside_a_step_is_marked(tmp_path: Path) -> None:
    """It is cut out of the step's time, and can be told apart in the trace."""
    run = Captured(tmp_path, schedule(active=1)).train(7)
    run.recorder.boundary()
    run.recorder.enter_gap(Gap.CHECKPOINT)
    run.recorder.leave_gap()
    micro_batch_done(run.recorder, complete=True)
    run.train(1).finish()

    assert run.traces()[0].phases(7) == ["checkpoint"]


def test_the_end_of_the_fit_keeps_the_complete_steps(tmp_path: Path) -> None:
    """As a last batch does, it ends the epoch first."""
    run = Captured(tmp_path, schedule()).train(8)
    run.recorder.epoch_ended()
    run.finish()

    (trace,) = run.traces()
    assert trace.steps() == [7]
    assert trace.facts["ended_by"] == "shutdown"
    assert run.attributed_ns() == run.fit_ns


def test_an_error_in_the_middle_of_a_phase_leaves_a_sound_trace(tmp_path: Path) -> None:
    """Open phases are closed, the profiler is stopped, and every nanosecond is somewhere."""
    run = Captured(tmp_path, schedule()).train(9)
    run.recorder.boundary()
    run.recorder.enter(Phase.OPTIMIZER)
    run.recorder.enter(Phase.FORWARD)
    run.wait(2)
    run.finish()

    (trace,) = run.traces()
    assert trace.facts["complete_steps"] == 2
    assert trace.phases(8) == ["data_wait", "forward", "loop"]
    assert not torch_profiles()
    assert run.recorder.listener is None
    assert run.attributed_ns() == run.fit_ns


@pytest.mark.parametrize("steps", [6, 7])
def test_an_end_before_the_first_traced_step_is_complete_leaves_nothing(
    tmp_path: Path, steps: int
) -> None:
    """Neither a file nor a running profiler."""
    run = Captured(tmp_path, schedule()).train(steps)
    run.recorder.boundary()
    run.finish()

    assert not torch_profiles()
    assert not (tmp_path / "traces").exists()
    assert run.guard.faults == {}
    sentence = "nothing captured: the fit ended before one traced step was complete"
    assert run.probe.notes() == {"captures_unfinished": sentence}
    assert run.attributed_ns() == run.fit_ns


def test_an_end_inside_the_first_traced_step_begins_nothing_anew(tmp_path: Path) -> None:
    """A capture cut short is tried again after validation, not after the fit."""
    run = Captured(tmp_path, schedule()).train(7)
    run.micro_batch(complete=False)
    run.finish()

    # The warm-up, the start, and dropping what there was.
    assert [gap.after_step for gap in run.gaps if gap.gap == "profiler_dump"] == [4, 6, 7]
    assert run.attributed_ns() == run.fit_ns


def test_no_capture_is_begun_when_the_fit_is_over(tmp_path: Path) -> None:
    """Though the plan begins one after the step that the end closes."""
    run = Captured(tmp_path, schedule()).train(4)
    run.micro_batch(complete=False)
    run.finish()

    assert len(run.steps) == 5
    assert [gap.gap for gap in run.gaps] == ["startup", "shutdown"]
    assert run.probe.notes() == {}


def test_cycles_without_an_end_do_not_complain_that_the_fit_has_one(tmp_path: Path) -> None:
    """The last of them is always cut short."""
    run = Captured(tmp_path, schedule(repeat=0)).train(16).finish()

    assert run.probe.notes() == {"captures": "rank0-step000007-3steps.trace.json.gz"}


def test_a_request_is_captured_after_the_warm_up(tmp_path: Path) -> None:
    """The file is seen at the first boundary after a second; warm-up and active steps follow."""
    run = Captured(tmp_path, schedule(on_demand=True, **NEVER)).train(3)
    (tmp_path / "capture").touch()
    run.train(2)
    run.wait(1000)
    run.train(10).finish()

    # Looked for at the end of step 0, and again at the end of the step in which a second passed.
    assert [trace.steps() for trace in run.traces()] == [[7, 8, 9]]
    assert run.profiled() == [5, 6, 7, 8, 9, 10]


def test_a_request_during_a_capture_is_met_when_it_is_over(tmp_path: Path) -> None:
    """Two at once are impossible, and none is forgotten."""
    run = Captured(tmp_path, schedule(wait=0, on_demand=True))
    (tmp_path / "capture").touch()
    run.train(14).finish()

    assert [trace.steps() for trace in run.traces()] == [[2, 3, 4], [7, 8, 9]]


def test_a_planned_cycle_during_a_requested_one_is_met_when_it_is_over(tmp_path: Path) -> None:
    """Neither is forgotten."""
    run = Captured(tmp_path, schedule(wait=3, on_demand=True))
    (tmp_path / "capture").touch()
    run.train(14).finish()

    assert [trace.steps() for trace in run.traces()] == [[3, 4, 5], [8, 9, 10]]


def test_too_many_traces_are_not_begun_and_it_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The steps that would have been captured are ordinary ones."""
    run = Captured(tmp_path, schedule(repeat=0, max_traces=2)).train(60).finish()

    assert len(run.names()) == 2
    assert run.profiled() == [*range(5, 11), *range(15, 21)]
    (said,) = [record.message for record in caplog.records]
    assert said == (
        "trainperf: no more captures: max_traces=2 traces are written; raise max_traces to have "
        "more"
    )


def test_too_large_a_trace_is_thrown_away_and_it_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """With what to do about it; later cycles are tried all the same."""
    run = Captured(tmp_path, schedule(repeat=2, max_trace_bytes=100)).train(30).finish()

    assert list((tmp_path / "traces").iterdir()) == []
    assert run.profiled() == [*range(5, 11), *range(15, 21)]
    (said,) = [record.message for record in caplog.records]
    assert said == (
        "trainperf: the trace of 3 steps from 7 was thrown away: packed it is larger than "
        "max_trace_bytes=100; capture fewer steps (active), leave with_stack and record_shapes "
        "off, or raise max_trace_bytes"
    )


def test_a_profiler_that_runs_already_is_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Torch has room for one: ours is declined, once said, and theirs loses nothing."""
    run = Captured(tmp_path, schedule(repeat=2))
    theirs = foreign()
    theirs.start()
    run.train(30).finish()
    theirs.stop()

    assert sum(event.name == "aten::mm" for event in theirs.events()) == 30
    assert run.names() == []
    (said,) = [record.message for record in caplog.records]
    assert said == (
        "trainperf: the capture at step 7 is declined: another torch profiler is active, and "
        "torch has room for one; stop it, or let trainperf capture alone"
    )
    assert run.attributed_ns() == run.fit_ns


def test_a_profiler_that_warms_up_is_left_alone(tmp_path: Path) -> None:
    """Taking its place would kill the process when it starts."""
    run = Captured(tmp_path, schedule()).train(4)
    theirs = foreign()
    theirs.prepare_trace()
    run.train(10)
    theirs.start_trace()
    run.train(2)
    theirs.stop_trace()
    run.finish()

    assert sum(event.name == "aten::mm" for event in theirs.events()) == 2
    assert list(run.probe.notes()) == ["captures_declined"]


def test_a_profiler_that_came_and_went_before_does_no_harm(tmp_path: Path) -> None:
    """Neither one that is over while ours warms up, nor its object that is still there."""
    run = Captured(tmp_path, schedule()).train(6)
    theirs = foreign()
    with theirs:
        torch.ones(1)
    run.train(6).finish()

    assert [trace.steps() for trace in run.traces()] == [[7, 8, 9]]


class Broken(Marks):
    """Fails at the second mark."""

    def __init__(self) -> None:
        super().__init__()
        self.marks = 0

    def enter(self, name: str) -> None:
        """Count, and fail when it is time."""
        self.marks += 1
        if self.marks == 2:
            raise RuntimeError("planted")
        super().enter(name)


def test_a_fault_while_tracing_stops_the_profiler_and_training_goes_on(tmp_path: Path) -> None:
    """The part is switched off, nothing listens any more, and the accounts are right."""
    run = Captured(tmp_path, schedule(repeat=2))
    run.probe._marks = Broken()
    run.train(8)
    running = torch_profiles()
    run.train(30).finish()

    assert run.guard.faults == {"profiler": "RuntimeError: planted"}
    assert not running
    assert run.recorder.listener is None
    assert {sum(step.host_ns) for step in run.steps} == {6 * MS}
    assert run.attributed_ns() == run.fit_ns
    assert run.names() == []


def test_a_directory_that_cannot_be_made_switches_captures_off(tmp_path: Path) -> None:
    """Its error is reported, the gap is closed, and no profiler is left running."""
    (tmp_path / "traces").write_text("a file", encoding="ascii")
    run = Captured(tmp_path, schedule(repeat=0)).train(30).finish()

    assert run.guard.faults["profiler"].startswith("FileExistsError")
    assert not torch_profiles()
    assert {sum(step.host_ns) for step in run.steps} == {6 * MS}
    assert run.attributed_ns() == run.fit_ns


def test_a_tracer_dropped_at_any_time_leaves_room_for_the_next(tmp_path: Path) -> None:
    """Before it started, and while it runs."""
    for started in (False, True):
        tracer = Tracer(ScheduledProfile(), "cpu")
        tracer.warm_up()
        if started:
            tracer.start()
        tracer.drop()
        assert not torch_profiles()

    last = Tracer(ScheduledProfile(), "cpu")
    assert last.warm_up()
    assert last.start()
    last.stop({})
