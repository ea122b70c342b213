"""Sampler of the training thread: what it sees, what it keeps, what it costs, when it stops."""

import contextlib
import gc
import json
import os
import subprocess
import sys
import sysconfig
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from types import CodeType, SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from support import racing_frames
from support.live import micro_batch_done
from support.waiting import until

from trainperf.core.artifacts import read_document
from trainperf.core.artifacts.lines import SampledLines
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.core.phases import Phase
from trainperf.recording.guard import Guard
from trainperf.recording.line_sampler import (
    EAGER_SWITCH_S,
    LEAST_NS,
    MOST_SAMPLES,
    EagerSwitches,
    LineSampler,
)
from trainperf.recording.probes.lines import LinesProbe
from trainperf.recording.probes.user_stacks import (
    FRAMEWORK,
    LIBRARY,
    MODULE,
    MOST_STACKS,
    PACKAGE,
    USER,
    UserStacks,
    kind_of,
)
from trainperf.recording.recorder import Recorder
from trainperf.recording.stacks import running_in, stack_of


FORWARD = Phase.FORWARD.label


def calling(function: Callable[[], object], file: str, name: str) -> Callable[[], object]:
    """A function of that name in that file, which calls the other one."""
    source = f"def {name}():\n    return function()\n"
    space: dict[str, object] = {"function": function}
    exec(compile(source, file, "exec"), space)  # noqa: S102 code of a file that is not there
    return space[name]  # type: ignore[return-value]


def recorder_of() -> Recorder:
    """One whose steps have only their overhead."""
    recorder = Recorder(monotonic_ns)
    recorder.set_columns(("overhead_ns",), {"overhead_ns"})
    return recorder


def names(stacks: UserStacks, number: int) -> list[str]:
    """Functions of a stack, the innermost one first."""
    places = stacks.places()
    return [places[place].function for place in reversed([*stacks.stacks][number].frames)]


def test_files_are_told_apart_by_whose_they_are() -> None:
    """Torch's, Python's, an installed package's, the user's."""
    installed = f"{sysconfig.get_path('purelib')}/somepackage/code.py"
    assert kind_of(json.__file__) == LIBRARY
    assert kind_of(contextlib.__file__) == FRAMEWORK  # it calls whatever it is given
    assert kind_of(torch.nn.functional.__file__) == FRAMEWORK
    assert kind_of(torch.nn.modules.module.__file__) == MODULE
    assert kind_of(installed) == PACKAGE
    assert kind_of("/home/me/train.py") == USER
    assert kind_of("<frozen importlib._bootstrap>") == FRAMEWORK


def test_frames_of_libraries_fold_into_the_line_that_called_them() -> None:
    """`json` is called by `encode`."""
    stacks = UserStacks()
    numbers: list[int] = []

    def look() -> None:
        numbers.append(stacks.number(FORWARD, stack_of(sys._getframe().f_back)))

    library = calling(look, json.__file__, "dumps")
    user = calling(calling(library, "/home/me/data.py", "encode"), "/home/me/train.py", "main")
    user()
    assert names(stacks, numbers[0])[:2] == ["encode", "main"]


def test_a_frame_without_a_line_is_on_the_first_of_its_function() -> None:
    """Between two lines a frame has none; the file of lines holds numbers only."""
    code = calling(list, "/home/me/train.py", "main").__code__
    stacks = UserStacks()

    stacks.number(FORWARD, [(code, None)])

    assert [place.line for place in stacks.places()] == [1]


def test_a_frame_without_code_is_not_read() -> None:
    """CPython shows one now and then that is just being left: its sample is skipped."""
    bare = SimpleNamespace(f_code=None, f_back=None)
    around = SimpleNamespace(f_code=stack_of.__code__, f_lineno=1, f_back=bare)

    assert stack_of(None) == []
    assert stack_of(sys._getframe())
    assert stack_of(around) == []  # type: ignore[arg-type]


def test_a_module_called_by_the_user_is_told_from_the_code_around_it() -> None:
    """What is inside of its call is its forward."""
    stacks = UserStacks()
    numbers: list[int] = []

    class Net(torch.nn.Module):
        def forward(self) -> None:
            calling(
                lambda: numbers.append(stacks.number(FORWARD, stack_of(sys._getframe()))),
                "/home/me/model.py",
                "attend",
            )()

    def estimate(net: Net) -> None:
        net()

    estimate(Net())
    functions = names(stacks, numbers[0])
    outside = [*stacks.stacks][numbers[0]].outside
    inside = len(functions) - outside
    assert "attend" in functions[:inside]
    assert functions[inside].endswith("estimate")


def test_the_number_of_stacks_is_bounded() -> None:
    """A code generator cannot fill the memory."""
    stacks = UserStacks()
    for slot in range(MOST_STACKS):
        stacks.number(f"{slot}", [])
    for number in range(100):
        calling(
            lambda: stacks.number("0", stack_of(sys._getframe().f_back)),
            "/home/me/train.py",
            f"made_{number}",
        )()
    assert len(stacks.stacks) == MOST_STACKS
    assert stacks.places() == ()


def test_the_number_of_samples_is_bounded_and_they_stay_spread_over_the_fit(
    tmp_path: Path,
) -> None:
    """Every so many-th is kept."""
    probe = LinesProbe(tmp_path)
    probe.recorder = recorder_of()
    probe._sampler._watched = threading.get_ident()
    number = 3 * MOST_SAMPLES
    for step in range(number):
        probe.recorder.index = step
        probe._sampler._look(1000)
    document = probe.document()
    steps = [sample.step for sample in document.samples]
    assert len(steps) <= MOST_SAMPLES
    assert document.taken == number
    assert {later - earlier for earlier, later in pairwise(steps)} == {document.every}


def test_pauses_follow_from_what_a_sample_costs() -> None:
    """And are never all alike."""
    probe = LineSampler(lambda stack: (FORWARD, 0, stack), budget=0.001)
    probe.taken, probe.cost_ns = 100, 100 * 200_000
    pauses = [probe._pause_ns() for _ in range(1000)]
    assert sum(pauses) / 1000 == pytest.approx(200e6, rel=0.01)
    assert len(set(pauses)) > 900  # in step with nothing
    probe.taken, probe.cost_ns = 50, 50 * 200_000  # a fit of seconds: the credit lasts
    pauses = [probe._pause_ns() for _ in range(1000)]
    assert sum(pauses) / 1000 == pytest.approx(50e6, rel=0.01)
    probe.cost_ns = 100
    assert min(probe._pause_ns() for _ in range(1000)) >= LEAST_NS / 2


def started(path: Path, guard: Guard | None = None) -> LinesProbe:
    """A probe that samples this thread."""
    probe = LinesProbe(path, budget=0.5)
    if guard is not None:
        probe.shield = lambda function: guard.wrap(probe.name, function)
    probe.attach(recorder_of())
    return probe


def sampler_threads() -> list[threading.Thread]:
    """Those that are alive."""
    return [thread for thread in threading.enumerate() if thread.name == "trainperf lines"]


def test_the_thread_samples_until_it_is_detached_and_then_writes(tmp_path: Path) -> None:
    """It sees the test wait; what that costs is the steps' overhead."""
    probe = started(tmp_path)
    recorder = probe.recorder
    recorder.boundary()
    recorder.rest(Phase.FORWARD)
    until(lambda: probe.document().taken >= 3)
    micro_batch_done(recorder, complete=True)
    recorder.boundary()
    probe.resolve(recorder.closed)
    probe.detach()
    assert recorder.closed[0].facts["overhead_ns"] > 0
    assert sampler_threads() == []
    document = read_document(SampledLines, tmp_path)
    assert document.taken >= 3
    assert document.cost_s > 0
    assert "until" in {place.function for place in document.places}
    probe.detach()  # twice is once


def test_a_fault_in_the_thread_switches_it_off_and_nothing_else(tmp_path: Path) -> None:
    """It is kept under its name."""
    guard = Guard()
    probe = started(tmp_path, guard)

    probe._sampler.stacks.number = Mock(side_effect=ValueError("planted"))  # type: ignore[method-assign]
    until(lambda: guard.faults)
    assert guard.faults == {"lines": "ValueError: planted"}
    probe.detach()
    assert sampler_threads() == []


def test_a_forked_child_has_no_sampler(tmp_path: Path) -> None:
    """As a worker of a loader is one."""
    probe = started(tmp_path)
    until(lambda: probe._sampler.taken)
    child = os.fork()
    if child == 0:
        alive = [thread for thread in threading.enumerate() if thread.name == "trainperf lines"]
        os._exit(len(alive))
    _, status = os.waitpid(child, 0)
    probe.detach()
    assert os.waitstatus_to_exitcode(status) == 0


def test_no_frame_is_kept(tmp_path: Path) -> None:
    """Its variables would live on."""
    stacks = UserStacks()
    frame = sys._getframe()
    before = sys.getrefcount(frame)
    stacks.number(FORWARD, stack_of(frame), frame)
    assert sys.getrefcount(frame) == before
    assert all(isinstance(code, CodeType) for _, code in stacks._places.values())


def test_the_switch_interval_is_short_before_a_sample_and_then_what_it_was() -> None:
    """Unless somebody changes it meanwhile."""
    before = sys.getswitchinterval()
    with EagerSwitches():
        assert sys.getswitchinterval() == pytest.approx(EAGER_SWITCH_S)
    assert sys.getswitchinterval() == before
    try:
        with EagerSwitches():
            sys.setswitchinterval(0.02)
        assert sys.getswitchinterval() == pytest.approx(0.02)
    finally:
        sys.setswitchinterval(before)


@pytest.mark.parametrize("collects", [True, False])
def test_a_look_leaves_the_garbage_collector_as_it_was(*, collects: bool) -> None:
    """Whether it was on or off."""
    before = gc.isenabled()
    (gc.enable if collects else gc.disable)()
    try:
        frame, stack = running_in(threading.get_ident())
        assert gc.isenabled() is collects
    finally:
        (gc.enable if before else gc.disable)()
    assert frame is not None
    assert stack[0][0].co_name == "running_in"


def test_a_stack_that_changes_while_it_is_read_ends_no_process() -> None:
    """A crash of the interpreter would be the end of the training."""
    script = Path(racing_frames.__file__)
    assert subprocess.run([sys.executable, script, "1"], check=False, timeout=120).returncode == 0
