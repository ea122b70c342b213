"""Watch of steps that do not end: when it writes, and what a place that only lasts is."""

import threading
from pathlib import Path

import pytest

from trainperf.core.artifacts.standstill import ENDED, Standstill, read_standstills
from trainperf.core.phases import Tag
from trainperf.core.steps.records import FINISHED
from trainperf.recording.probes import standstill as watch
from trainperf.recording.probes.standstill import StandstillProbe
from trainperf.recording.recorder import Recorder
from trainperf.testing import FakeClock


class Unstarted(StandstillProbe):
    """One whose looks are those of a test, not of a thread."""

    def _watch(self) -> None:
        pass


@pytest.fixture
def clock() -> FakeClock:
    """A clock that moves only when told to."""
    return FakeClock()


@pytest.fixture
def probe(clock: FakeClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Unstarted:
    """The watch of a rank in its first step, where a minute is a hang.  No CPU is used."""
    monkeypatch.setattr(watch, "_spent", lambda *_: {"thread": 0.0})
    recorder = Recorder(clock)
    recorder.set_columns(("overhead_ns",), {"overhead_ns"})
    watched = Unstarted(tmp_path, 0, 1, least_s=60.0)
    watched.attach(recorder)
    recorder.fetch()
    return watched


def complete(probe: Unstarted) -> None:
    """The open step is over but for the next batch."""
    probe.recorder.draft.complete = True


def looks(probe: Unstarted, clock: FakeClock, minutes: float) -> list[Standstill]:
    """Look every five seconds, from one place, for so long; what is in the file then."""
    for _ in range(round(minutes * 12)):
        clock.advance(ms=5000)
        probe.look()
    return list(read_standstills(probe._run))


def test_nothing_is_written_while_steps_end(probe: Unstarted, clock: FakeClock) -> None:
    """Each of fifty seconds, for an hour."""
    for _ in range(72):
        assert looks(probe, clock, 50 / 60) == []
        complete(probe)
        probe.recorder.fetch()


def test_a_place_that_does_not_change_is_written_each_minute(
    probe: Unstarted, clock: FakeClock
) -> None:
    """It stands still, and the time of the last look is in the file."""
    (first,) = looks(probe, clock, 1.1)
    (later,) = looks(probe, clock, 2.0)
    assert first.still
    assert first.stack[first.own].function == "looks"
    assert (first.step, first.phase, first.since_s) == (0, "data_wait", 0.0)
    assert later.at_s - first.at_s == pytest.approx(120, abs=10)


def test_what_goes_on_from_line_to_line_is_no_standstill(
    probe: Unstarted, clock: FakeClock
) -> None:
    """An evaluation of many batches: it is written, for the others that wait, and not still."""
    for _ in range(10):
        looks(probe, clock, 1 / 12)
        (written,) = looks(probe, clock, 1 / 12) or [None]
    assert not written.still


def test_what_computes_is_no_standstill(
    probe: Unstarted, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One call that takes minutes of a CPU, as a compiler's may, here or in a child."""
    spent = iter(range(0, 10_000, 60))
    monkeypatch.setattr(watch, "_spent", lambda *_: {"busy": next(spent)})
    (written,) = looks(probe, clock, 2.0)
    assert not written.still
    assert written.busy > 0.5


def test_a_child_that_ends_is_no_idle_process(
    probe: Unstarted, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it has computed is gone with it, before the thread goes on; if that stays, it hangs."""
    monkeypatch.setattr(watch, "_spent", lambda *_: {"busy": 300.0 * (clock() < 50e9)})
    still = [written.still for _ in range(24) for written in looks(probe, clock, 1 / 12)]
    assert not still[0]
    assert still[-1]


@pytest.mark.parametrize(
    ("share", "on_host", "still"),
    [
        pytest.param(0.01, True, False, id="comes back to one line, as of a slow loader"),
        pytest.param(0.00005, True, True, id="asks a queue every five seconds"),
        pytest.param(1.0, True, False, id="computes"),
        pytest.param(1.0, False, True, id="asks a device at full speed, in one call"),
    ],
)
def test_a_thread_that_goes_on_computes(
    probe: Unstarted,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    *,
    share: float,
    on_host: bool,
    still: bool,
) -> None:
    """However often it is seen at the same place."""
    probe._on_host = on_host
    monkeypatch.setattr(watch, "_spent", lambda *_: {"thread": share * clock.now_ns / 1e9})
    (written,) = looks(probe, clock, 3.0)
    assert written.still == still


@pytest.mark.parametrize(
    ("ends", "over"), [("a step", True), (FINISHED, True), ("RuntimeError", False)]
)
def test_what_went_on_is_over(probe: Unstarted, clock: FakeClock, ends: str, *, over: bool) -> None:
    """The file says so, with how long it lasted; what an error ended is told in the report."""
    looks(probe, clock, 3.0)
    if ends == "a step":
        complete(probe)
        probe.recorder.fetch()
        probe.look()
    else:
        probe.ended(ends)
    probe.detach()
    (written,) = read_standstills(probe._run)
    assert written.over == over
    assert written.at_s - written.since_s == pytest.approx(150, abs=40)


def test_a_loop_that_nobody_closes_may_be_over(probe: Unstarted, clock: FakeClock) -> None:
    """Its last step is complete and no batch was asked for: a plot that is shown is no hang."""
    complete(probe)
    (written,) = looks(probe, clock, 3.0)
    assert not written.still


def test_a_thread_that_has_ended_is_not_asked(probe: Unstarted, clock: FakeClock) -> None:
    """Its processor clock is gone with it, and asking for that ends the process.

    Another thread may keep the process, and others wait for this rank.
    """
    thread = threading.Thread(target=probe.begin)
    thread.start()
    thread.join()
    (written,) = looks(probe, clock, 3.0)
    assert (written.phase, written.still) == (ENDED, False)


def test_an_exception_that_is_handled_is_named(probe: Unstarted, clock: FakeClock) -> None:
    """As where a server is told of an error, while the others wait."""
    try:
        [].pop()
    except IndexError:
        (written,) = looks(probe, clock, 3.0)
    assert written.handles == "IndexError"


@pytest.mark.parametrize(
    ("share", "later", "still"),
    [
        pytest.param(0.01, {}, False, id="reads slowly"),
        pytest.param(0.00005, {}, True, id="asks"),
        pytest.param(0.0, {7: 0.5}, False, id="one is new"),
    ],
)
def test_a_worker_that_goes_on_is_no_hang(
    probe: Unstarted,
    clock: FakeClock,
    monkeypatch: pytest.MonkeyPatch,
    *,
    share: float,
    later: dict[int, float],
    still: bool,
) -> None:
    """However little it computes: what it reads is slow.  One that has ended counts no more."""
    workers = iter([{5: 0.1, 6: 9.0}])
    spent = lambda *_: next(workers, {6: 9.0 + share * clock.now_ns / 1e9, **later})  # noqa: E731
    monkeypatch.setattr(watch, "_spent", spent)
    (written,) = looks(probe, clock, 3.0)
    assert written.still == still


@pytest.mark.parametrize("written", [True, False])
@pytest.mark.parametrize(
    ("warmup_s", "steady_s", "limit_s"),
    [
        pytest.param([], [], 60, id="none"),
        pytest.param([900], [], 60, id="the first was slow"),
        pytest.param([900, 90], [], 1800, id="a second one"),
        pytest.param([900, 1, 90, 90], [], 1800, id="warm-up that does not end"),
        pytest.param([900, 90, 90, 90], [1] * 12, 60, id="warm-up has ended"),
        pytest.param([10] * 3, [10] * 9 + [900], 200, id="the slowest of few"),
    ],
)
def test_slow_steps_have_twenty_of_theirs(
    probe: Unstarted,
    clock: FakeClock,
    warmup_s: list[int],
    steady_s: list[int],
    limit_s: int,
    *,
    written: bool,
) -> None:
    """Not of warm-up's, and on all ranks alike, whether their latest steps are written or not."""
    recorder = probe.recorder
    for step, seconds in enumerate((*warmup_s, *steady_s)):
        clock.advance(ms=1e3 * seconds)
        complete(probe)
        recorder.fetch()
        if step < len(warmup_s):
            recorder.closed[-1].tags |= Tag.WARMUP
    if written:
        probe.seal()
        probe.resolve(recorder.take()[0])
    assert looks(probe, clock, limit_s / 60 - 0.2) == []
    assert looks(probe, clock, 0.4)


def test_a_file_of_an_earlier_attempt_goes(probe: Unstarted, clock: FakeClock) -> None:
    """A restart has nothing to say of itself yet."""
    looks(probe, clock, 2.0)
    probe.begin()
    assert not list(read_standstills(probe._run))
