"""How waits of a loop are divided, by when a loader is asked and answers; on a clock of our own."""

from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest
from support.live import micro_batch_done

from trainperf.core.phases import PHASES, Gap, Phase
from trainperf.loop.phase_contexts import PhaseContexts
from trainperf.plugins.outside_facts import COARSE, LOADER_HEARD, OutsideProbe
from trainperf.plugins.outside_modules import ThreadHook
from trainperf.plugins.outside_waits import BatchWaits
from trainperf.recording.guard import Guard
from trainperf.recording.probes.device_marks import Mark
from trainperf.recording.probes.selection import ProbeSet
from trainperf.recording.recorder import Recorder


class Loop:
    """A loop of which only the waits are told, and what it did by its own clock."""

    def __init__(self) -> None:
        self.now_ns = 0
        self.recorder = Recorder(lambda: self.now_ns)
        phases = PhaseContexts(self.recorder, Guard(), ProbeSet())
        self.fit: Any = SimpleNamespace(recorder=self.recorder, phases=phases)
        self.waits = BatchWaits(self.fit)
        self.waits.begin_step()
        self.waiting = True

    def spend(self, ns: int) -> None:
        """Code of the loop's own."""
        self.now_ns += ns

    def fetch(self, ns: int) -> None:
        """A batch, from a loader that is heard."""
        self.waits.begins()
        self.spend(ns)
        self.waits.ends()

    def forward(self, ns: int = 0) -> None:
        """What the first hook of a forward does; then the forward."""
        if self.waiting:
            self.waits.end()
        self.waiting = False
        self.recorder.rest(Phase.FORWARD)
        self.spend(ns)

    def backward(self) -> None:
        """It is over, and another micro-batch may follow."""
        self.recorder.rest(Phase.OTHER)
        self.waiting = True

    def update(self) -> None:
        """The step is over."""
        self.waits.settle()
        self.recorder.rest(Phase.OTHER)
        micro_batch_done(self.recorder, complete=True)
        self.waits.begin_step()
        self.waiting = True

    def step(self, before: int = 0, *, fetch: int = 0, after: int = 0, forward: int = 0) -> None:
        """One forward and its update, with a batch where that takes time, and code around it."""
        self.spend(before)
        if fetch:
            self.fetch(fetch)
        self.spend(after)
        self.forward(forward)
        self.update()

    def evaluate(self, ns: int) -> None:
        """Between two steps."""
        self.waits.validate()
        self.waiting = False
        self.spend(ns)

    def phases_ns(self, step: int = -1) -> dict[str, int]:
        """What a step that is over spent in which phase."""
        spent = zip(PHASES, self.recorder.closed[step].host_ns, strict=True)
        return {phase.label: ns for phase, ns in spent if ns}


def told(loop: Loop) -> OutsideProbe:
    """What says how it was recorded."""
    return OutsideProbe(None, "cpu", loop.waits)


@pytest.fixture
def loop() -> Loop:
    """One that waits for its first forward."""
    return Loop()


def test_a_pause_in_the_loops_own_code_is_other_and_a_slow_loader_is_data_wait(loop: Loop) -> None:
    """In each step by itself, also in the first, of which nobody knew that it would be heard."""
    for step in range(3):  # logging and zero_grad before, a copy to the device after it
        loop.step(5, fetch=20 + step, after=7, forward=2)

    assert [loop.phases_ns(step) for step in range(3)] == [
        {"data_wait": 20 + step, "forward": 2, "other": 12} for step in range(3)
    ]
    assert not loop.waits.coarse()


def test_where_no_loader_is_heard_all_from_update_to_forward_is_data_wait(loop: Loop) -> None:
    """As without anything that listens."""
    for _ in range(3):
        loop.step(25, forward=2)

    assert [loop.phases_ns(step) for step in range(3)] == 3 * [{"data_wait": 25, "forward": 2}]
    assert loop.waits.coarse()


def test_a_loader_that_is_heard_no_more_leaves_it_coarse(loop: Loop) -> None:
    """From the second such step on; the run says in how many waits a loader was heard.

    The first one may have what it trains on from the step before.
    """
    for fetch in (20, 20, 0, 0, 0, 0):
        loop.step(25 - fetch, fetch=fetch)

    data_wait = [loop.phases_ns(step).get("data_wait", 0) for step in range(6)]
    assert data_wait == [20, 20, 0, 25, 25, 25]
    assert "heard in 50 % of the waits" in told(loop).notes()["data_wait"]
    assert told(loop).config()["loop"] == "outside"


def test_what_is_sampled_meanwhile_is_in_the_phase_that_it_is_counted_in(loop: Loop) -> None:
    """Lines are sampled with the current phase: a pause is other while it lasts."""
    loop.step(fetch=20)

    assert loop.recorder.slot == Phase.OTHER
    loop.waits.begins()
    assert loop.recorder.slot == Phase.DATA_WAIT
    loop.waits.ends()
    assert loop.recorder.slot == Phase.OTHER


def test_a_device_stalls_for_the_loader_alone(loop: Loop) -> None:
    """The last mark before the loader answers is the one that counts."""
    marks: list[tuple[Mark, int]] = []
    loop.fetch(20)
    loop.forward()
    probe: Any = SimpleNamespace(name="marks", mark=lambda mark: marks.append((mark, loop.now_ns)))
    loop.fit.phases = PhaseContexts(loop.recorder, Guard(), ProbeSet(marks=probe))
    loop.update()
    begun_ns = loop.now_ns
    loop.spend(5)
    loop.fetch(20)
    loop.spend(7)
    loop.forward()

    assert [(mark, at_ns - begun_ns) for mark, at_ns in marks] == [
        (Mark.FETCH_BEGINS, 0),
        (Mark.FETCH_BEGINS, 5),
        (Mark.FETCH_ENDS, 25),
    ]


def test_each_micro_batch_is_waited_for(loop: Loop) -> None:
    """Those that are cut from a batch that is there wait for nothing."""
    for fetched in (True, False):
        loop.fetch(20)
        for micro_batch in range(3):
            if fetched and micro_batch:
                loop.fetch(20)
            loop.spend(3)
            loop.forward(2)
            loop.backward()
        loop.spend(4)
        loop.update()

    assert loop.phases_ns(0) == {"data_wait": 60, "forward": 6, "other": 13}
    assert loop.phases_ns(1) == {"data_wait": 20, "forward": 6, "other": 13}
    assert not loop.waits.coarse()


def test_a_batch_that_is_fetched_ahead_is_data_wait_of_the_step_it_delays(loop: Loop) -> None:
    """As nanoGPT does; what waits for it then is the loop's own code."""
    for _ in range(3):
        loop.spend(5)
        loop.forward(2)
        loop.fetch(20)
        loop.backward()
        loop.update()

    assert loop.phases_ns(0) == {"data_wait": 25, "forward": 2}  # nobody could know
    for step in (1, 2):
        assert loop.phases_ns(step) == {"data_wait": 20, "forward": 2, "other": 5}
    assert not loop.waits.coarse()


def test_the_end_of_an_epoch_is_the_loops_own_code(loop: Loop) -> None:
    """A loader that has no batch any more does not answer."""
    loop.step(fetch=20)
    loop.waits.begins()
    loop.step(1000, fetch=30)  # it raised StopIteration: a checkpoint, say

    assert loop.phases_ns() == {"data_wait": 30, "other": 1000}


@pytest.mark.parametrize("usual", [False, True])
def test_a_validation_takes_its_batches_with_it(loop: Loop, *, usual: bool) -> None:
    """Between steps it is a gap from the update on, as long as it is."""
    if usual:
        loop.step(fetch=20)
    begun_ns = loop.now_ns
    loop.spend(5)
    loop.fetch(40)
    loop.evaluate(100)
    loop.fetch(30)
    loop.recorder.rest(Phase.OTHER)
    loop.step(forward=2)
    loop.step(25, forward=2)

    (gap,) = [gap for gap in loop.recorder.gaps if gap.gap == Gap.VALIDATION.label]
    assert (gap.start_ns, gap.duration_ns) == (begun_ns, 175)
    assert loop.phases_ns(-2) == {"forward": 2}
    # What the validation's loader took says nothing of the next step, which asked none.
    assert loop.phases_ns(-1) == {"data_wait": 25, "forward": 2}


def test_a_step_without_a_forward_has_its_data_wait_all_the_same(loop: Loop) -> None:
    """Where nothing was heard either, nothing tells what its time was for."""
    for fetch in (loop.fetch, loop.spend):
        loop.spend(5)
        fetch(20)
        loop.spend(5)
        loop.waits.end(Phase.OTHER)
        loop.update()

    assert loop.phases_ns(0) == {"data_wait": 20, "other": 10}
    assert loop.phases_ns(1) == {"other": 30}


def test_a_loader_in_another_thread_is_not_waited_for(loop: Loop) -> None:
    """What the loop does meanwhile counts."""
    asked, answered = ThreadHook(), ThreadHook()
    asked.act, answered.act = loop.waits.begins, loop.waits.ends

    def fetch() -> None:
        asked()
        loop.spend(20)
        answered()

    thread = Thread(target=fetch)
    thread.start()
    thread.join()
    loop.step()

    assert loop.waits.coarse()
    assert loop.phases_ns() == {"data_wait": 20}


@pytest.mark.parametrize(
    ("wait", "kind", "note"),
    [
        ("fetch", "outside, loader heard", LOADER_HEARD),
        ("before", "outside", COARSE.format("Data")),
    ],
    ids=["heard", "not heard"],
)
def test_a_recording_says_which_it_was(wait: str, kind: str, note: str, loop: Loop) -> None:
    """In its configuration, and in the words of the report."""
    for _ in range(3):
        loop.step(**{wait: 20})

    assert told(loop).config()["loop"] == kind
    assert told(loop).notes()["data_wait"] == note
