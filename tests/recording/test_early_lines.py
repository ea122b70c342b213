"""What a script does before there is a fit: who is sampled, what is kept, and when it ends."""

import gc
import multiprocessing
import sys
import threading
import types
import weakref

import pytest

from trainperf.analysis.summary.lines import before_fit, phase_lines
from trainperf.core.artifacts.lines import (
    BEFORE_FIT,
    IMPORTS,
    Place,
    Sample,
    SampledLines,
    SampledStack,
)
from trainperf.recording.early_lines import EVERY_NS, LOOKS, EarlyLines, Stack, stack_of
from trainperf.recording.probes.lines import _slot


class Work:
    """Something that a frame holds."""


def test_a_copy_has_the_lines_and_holds_nothing() -> None:
    """A frame would keep alive what the script lets go of."""

    def inner() -> tuple[Stack, "weakref.ref[Work]"]:
        held = Work()
        return stack_of(sys._getframe()), weakref.ref(held)

    stack, held = inner()

    gc.collect()
    assert held() is None
    own = sys._getframe().f_code.co_name
    assert [code.co_name for code, _ in stack[:2]] == ["inner", own]


def test_loading_a_module_is_told_from_the_scripts_own_work() -> None:
    """By the part of Python that loads, wherever it is in the stack."""
    code = compile(
        "import sys\ncopy = look(sys._getframe())", "<frozen importlib._bootstrap>", "exec"
    )
    space = {"look": stack_of}
    exec(code, space)  # noqa: S102 a frame of that file

    assert _slot(space["copy"]) == IMPORTS
    assert _slot(stack_of(sys._getframe())) == BEFORE_FIT


class Waits(threading.Event):
    """Lets a sampler look so many times, on a clock that its pauses move."""

    def __init__(self, looks: int) -> None:
        super().__init__()
        self.looks, self.now_ns, self.pauses_ns = looks, 0, []

    def wait(self, timeout: float | None = None) -> bool:
        """Time passes at once."""
        self.pauses_ns.append(round((timeout or 0.0) * 1e9))
        self.now_ns += self.pauses_ns[-1]
        return len(self.pauses_ns) > self.looks


def test_looks_get_rarer_and_stand_for_all_of_the_time() -> None:
    """Five a second first, then a five-hundredth of what has passed."""
    waits = Waits(looks=1500)
    early = EarlyLines(clock=lambda: waits.now_ns)
    early._stop = waits

    early._look_until_stopped()
    early._thread = threading.Thread(target=lambda: None)
    early._thread.start()
    samples = early.end()

    assert waits.pauses_ns[:2] == [EVERY_NS, EVERY_NS]
    assert waits.pauses_ns[-1] > 5 * EVERY_NS
    assert waits.pauses_ns[-1] <= sum(waits.pauses_ns) / LOOKS
    sampled_us = sum(sample.stands_for_us for sample in samples)
    assert sampled_us == pytest.approx(sum(waits.pauses_ns[:-1]) / 1000, abs=len(samples))
    assert early.end() == ()  # once


def test_a_workers_process_is_not_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spawned worker loads torch as well, and would be sampled for as long as it lives."""
    monkeypatch.setattr(multiprocessing, "parent_process", types.SimpleNamespace)
    early = EarlyLines()

    early.start()

    assert early._thread is None


def lines_of(before_s: float, loading_s: float, whole_s: float) -> SampledLines:
    """Samples of half a second from before a fit, and ten of its forward."""
    stacks = [
        SampledStack(slot, (place,), 1)
        for place, slot in enumerate((BEFORE_FIT, IMPORTS, "forward"))
    ]
    early = [Sample(0, -1, 500_000)] * round(2 * before_s) + [Sample(1, -1, 500_000)] * round(
        2 * loading_s
    )
    return SampledLines(
        taken=10,
        every=1,
        sampled_s=1.0,
        cost_s=0.0,
        places=tuple(Place("train.py", line, "prepare") for line in (7, 1, 9)),
        stacks=tuple(stacks),
        samples=(*early, *[Sample(2, 30, 1000)] * 10),
        before_fit_s=whole_s,
    )


def test_what_came_before_sums_to_the_time_of_the_process() -> None:
    """The script's own, loading modules, and what was before the first look."""
    lines = lines_of(12.0, 3.0, 16.5)

    assert before_fit(lines) == {"before_fit": 12.0, "imports": 3.0, "unseen": 1.5}
    owners = {each.slot: each.owner for each in phase_lines(lines, [30])}
    assert owners[BEFORE_FIT].where == "train.py:7"


def test_without_a_look_nothing_is_told() -> None:
    """A callback of one's own, or a later fit of a process."""
    assert before_fit(None) == {}
    assert before_fit(lines_of(0.0, 0.0, 0.0)) == {}
