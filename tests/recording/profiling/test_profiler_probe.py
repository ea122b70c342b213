"""What is captured of a timeline, which steps are tagged, and what it does to the accounts."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from support.live import MS, micro_batch_done
from support.profiler import NEVER, Captured, schedule, torch_profiles
from torch.profiler import ProfilerActivity, profile

from trainperf.core.phases import Gap, Phase
from trainperf.recording.guard import Guard
from trainperf.recording.profiling import profiler_probe
from trainperf.recording.profiling.options import CaptureRank, ScheduledProfile
from trainperf.recording.profiling.profiler_probe import capture_probe
from trainperf.recording.profiling.tracer import Tracer


def foreign() -> profile:
    """A profiler of the user's own."""
    return profile(activities=[ProfilerActivity.CPU])


def played(run: Path, options: dict[str, Any], script: str) -> Captured:
    """A fit of these moves: a number trains so many steps, `6x2` six of two micro-batches."""
    line = Captured(run, schedule(**options))
    moves: dict[str, Callable[[], object]] = {
        "batch": lambda: line.micro_batch(complete=False),
        "update": lambda: line.micro_batch(complete=True),
        "fetch": line.recorder.boundary,
        "epoch": line.recorder.epoch_ended,
        "validation": line.validate,
        "second": lambda: line.wait(1000),
        "request": (run / "capture").touch,
        "leave": line.recorder.leave,
        "checkpoint": lambda: (
            line.recorder.enter_gap(Gap.CHECKPOINT),
            line.recorder.leave(),
            micro_batch_done(line.recorder, complete=True),
        ),
    }
    for word in script.split():
        steps, _, micro_batches = word.partition("x")
        if word in moves:
            moves[word]()
        else:
            line.train(int(steps), micro_batches=int(micro_batches or 1))
    return line.finish()


@dataclass(frozen=True, kw_only=True)
class Case:
    """A fit, and what is captured of it."""

    script: str
    options: dict[str, Any] = field(default_factory=dict)
    traces: tuple[range, ...] = ()
    tagged: tuple[int, ...] | None = None
    """`None` where another test shows it."""
    notes: tuple[str, ...] = ("captures",)
    phases: tuple[str, ...] | None = None
    """That are marked in step 7, where they are asked for."""


UNFINISHED = {"notes": ("captures_unfinished",)}
USUAL = ("data_wait", "forward", "loop")
CASES = {
    "steps are those of the optimizer, with all their micro-batches": Case(
        options={"active": 2}, script="12x3", traces=(range(7, 9),), phases=3 * USUAL
    ),
    # Manual optimization may leave more than it entered.
    "a frame that is left twice does no harm": Case(
        options={"active": 1}, script="7 fetch leave update 1", traces=(range(7, 8),), phases=USUAL
    ),
    # It is cut out of the step's time, and can be told apart in the trace.
    "a checkpoint inside a step is marked": Case(
        options={"active": 1},
        script="7 fetch checkpoint 1",
        traces=(range(7, 8),),
        phases=("checkpoint",),
    ),
    "every cycle, of exactly its active steps": Case(
        options={"repeat": 2},
        script="30",
        traces=(range(7, 10), range(17, 20)),
        # The step after the dump finds cold caches and an empty queue.
        tagged=(*range(5, 11), *range(15, 21)),
    ),
    "a first step, and cycles that touch": Case(
        options={"wait": 0, "warmup": 1, "active": 2, "repeat": 2},
        script="8",
        traces=(range(1, 3), range(4, 6)),
    ),
    "cycles without an end do not complain that the fit has one": Case(
        options={"repeat": 0}, script="16", traces=(range(7, 10),)
    ),
    "validation ends it, and the complete steps are kept": Case(
        script="9 validation 5",
        traces=(range(7, 9),),
        tagged=tuple(range(5, 10)),
        notes=("captures", "captures_short"),
    ),
    "validation right after the last step leaves nothing out": Case(
        script="10 validation 3", traces=(range(7, 10),)
    ),
    "validation while warming up changes nothing": Case(
        script="6 validation 6", traces=(range(7, 10),)
    ),
    "validation amid the first step begins it anew": Case(
        script="7x2 batch validation update 8x2",
        traces=(range(10, 13),),
        tagged=tuple(range(5, 14)),
    ),
    "validation in every step": Case(
        script="batch validation update " * 30, notes=("captures_cut",)
    ),
    "a cycle after one that succeeded may be begun anew as often": Case(
        options={"wait": 0, "warmup": 1, "active": 1, "repeat": 0},
        script="1 batch validation update 1 " * 8,
        traces=tuple(range(step, step + 1) for step in (3, 5, 9, 11, 15, 17, 21, 23)),
    ),
    "the end keeps the complete steps": Case(
        script="8 epoch", traces=(range(7, 8),), notes=("captures", "captures_short")
    ),
    "an end before the first traced step": Case(script="6 fetch", **UNFINISHED),
    "an end as it begins": Case(script="7 fetch", **UNFINISHED),
    "an end amid it": Case(script="7 batch", **UNFINISHED),
    "none is begun when the fit is over": Case(script="4 batch", tagged=(), notes=()),
    "a request, after the warm-up": Case(
        options={"on_demand": True, **NEVER},
        script="3 request 2 second 10",
        # Looked for after step 0, and again after the step in which a second passed.
        traces=(range(7, 10),),
        tagged=tuple(range(5, 11)),
    ),
    "a request where that is not wanted": Case(
        options=NEVER, script="3 request 2 second 10", tagged=(), notes=()
    ),
    "a request during a capture is met when it is over": Case(
        options={"wait": 0, "on_demand": True},
        script="request 14",
        traces=(range(2, 5), range(7, 10)),
    ),
    "a cycle during a requested one is met when it is over": Case(
        options={"wait": 3, "on_demand": True},
        script="request 14",
        traces=(range(3, 6), range(8, 11)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_captured_of_a_fit(name: str, tmp_path: Path) -> None:
    """Nothing of validation is in it, no profiler is left running, and no nanosecond is lost."""
    case = CASES[name]
    run = played(tmp_path, case.options, case.script)

    assert [trace.steps() for trace in run.traces()] == [list(steps) for steps in case.traces]
    assert all("aten::cumsum" not in trace.names for trace in run.traces())
    assert run.names() == [
        f"rank0-step{steps[0]:06}-{len(steps)}steps.trace.json.gz" for steps in case.traces
    ]
    assert case.phases is None or run.traces()[0].phases(7) == [*case.phases]
    assert case.tagged is None or run.profiled() == list(case.tagged)
    assert tuple(run.probe.notes()) == case.notes
    assert (run.guard.faults, torch_profiles(), run.recorder.listener) == ({}, False, None)
    assert run.attributed_ns() == run.fit_ns


def test_an_end_amid_the_first_traced_step_begins_nothing_anew(tmp_path: Path) -> None:
    """The warm-up, the start, and dropping what there was, and no more."""
    gaps = played(tmp_path, {}, "7 batch").gaps

    assert [gap.after_step for gap in gaps if gap.gap == "profiler_dump"] == [4, 6, 7]


@pytest.mark.parametrize(
    ("script", "note"),
    [
        ("6 fetch", "nothing captured: the fit ended before one traced step was complete"),
        (
            "batch validation update " * 30,
            "nothing captured: validation began 3 times before one step was complete",
        ),
        (
            "9 validation 5",
            "rank0-step000007-2steps.trace.json.gz: 2 of 3 steps, since validation began",
        ),
    ],
)
def test_why_there_is_less_is_said(script: str, note: str, tmp_path: Path) -> None:
    """In a sentence of the notes."""
    assert note in played(tmp_path, {}, script).probe.notes().values()


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


def test_phases_are_marked_inside_the_steps_they_belong_to(tmp_path: Path) -> None:
    """In order, each once; operators lie inside the phase that ran them."""
    (trace,) = Captured(tmp_path, schedule(active=2)).train(12).finish().traces()
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


TOO_MANY = (
    "trainperf: no more captures: max_traces=2 traces are written; raise max_traces to have more"
)
TOO_LARGE = (
    "trainperf: the trace of 3 steps from 7 was thrown away: packed it is larger than "
    "max_trace_bytes=100; capture fewer steps (active), leave with_stack and record_shapes off, or "
    "raise max_trace_bytes"
)


@pytest.mark.parametrize(
    ("options", "steps", "kept", "said"),
    [
        ({"repeat": 0, "max_traces": 2}, 60, 2, TOO_MANY),
        ({"repeat": 2, "max_trace_bytes": 100}, 30, 0, TOO_LARGE),
    ],
    ids=["too many", "too large"],
)
def test_what_is_not_kept_is_said_once(
    options: dict[str, int],
    steps: int,
    kept: int,
    said: str,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With what to do; no more is begun than is kept, but one that is too large is tried again."""
    run = Captured(tmp_path, schedule(**options)).train(steps).finish()

    assert len(run.names()) == len(list((tmp_path / "traces").iterdir())) == kept
    assert run.profiled() == [*range(5, 11), *range(15, 21)]
    assert [record.message for record in caplog.records] == [said]


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


def test_a_fault_while_tracing_stops_the_profiler_and_training_goes_on(tmp_path: Path) -> None:
    """The part is switched off, nothing listens any more, and the accounts are right."""
    run = Captured(tmp_path, schedule(repeat=2)).train(7)
    run.recorder.boundary()
    show = run.probe._marks.show

    def fails(names: list[str]) -> None:
        if names:
            raise RuntimeError("planted")
        show(names)

    run.probe._marks.show = fails  # the mark of the step is open
    run.train(1)
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


@pytest.mark.parametrize("asked", [False, True])
def test_shapes_stacks_and_memory_come_when_asked_for(tmp_path: Path, *, asked: bool) -> None:
    """And not otherwise."""
    options = dict.fromkeys(("record_shapes", "with_stack", "profile_memory"), asked)
    (trace,) = Captured(tmp_path, schedule(**options)).train(11).finish().traces()

    events = trace.content["traceEvents"]
    assert any("Input Dims" in event.get("args", {}) for event in events) is asked
    assert any(event.get("cat") == "python_function" for event in events) is asked
    assert any(event["name"] == "[memory]" for event in events) is asked


@pytest.mark.parametrize(
    ("ranks", "captures"), [((1,), False), ((0,), True), ((0, 1), True), ((0, 5), True)]
)
def test_a_rank_that_is_not_chosen_traces_nothing(
    tmp_path: Path, ranks: tuple[int, ...], caplog: pytest.LogCaptureFixture, *, captures: bool
) -> None:
    """None of its steps is tagged on its account: it has no probe; without a directory none has."""
    for run in (tmp_path, None):
        place = CaptureRank(run=run, rank=0, world_size=2, device="cpu")
        probe = capture_probe(schedule(ranks=ranks), place, Guard())
        assert (probe is not None) is (captures and run is not None)
    assert ("no run directory to write them to" in caplog.text) is captures
