"""What is shown while training runs is what the file says afterwards."""

import random
import tempfile
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from support.memory_sink import MemorySink

from trainperf.core.phases import PHASES, Phase
from trainperf.core.steps.block import StepSchema
from trainperf.core.steps.codec import decode_info, decode_steps
from trainperf.core.steps.records import FACTS, RunInfo
from trainperf.meters import METERS
from trainperf.meters.fold import Fold, Reading, readings
from trainperf.recording.monitor import Monitor, RunParts
from trainperf.recording.probes.base import Probe
from trainperf.recording.recorder import Draft
from trainperf.recording.sinks.jsonl import JsonlSink
from trainperf.testing import FakeClock


Readings = dict[str, Reading]


class Random(Probe):
    """Feeds every fact there is; a share of them is not measured."""

    name = "random"
    facts: ClassVar[tuple[str, ...]] = tuple(name for name in FACTS if name != "overhead_ns")

    def __init__(self, seed: int, missing: float) -> None:
        self._random = random.Random(seed)  # noqa: S311 a test
        self._missing = missing

    def close(self, draft: Draft) -> None:
        """Fill in what was measured."""
        draw = self._random
        for fact in self.facts:
            known = draw.random() >= self._missing
            draft.facts[fact] = draw.choice([draw.randrange(10**9), draw.random()])
            if not known:
                draft.facts[fact] = None


def offline(path: Path) -> Readings:
    """Readings from the file alone."""
    header, *lines = path.read_bytes().splitlines()
    info = decode_info(header)
    schema = StepSchema(info.columns, info.device)
    fold = Fold(METERS)
    block, damaged = decode_steps(schema, [line for line in lines if line.startswith(b"[")])
    assert damaged == 0
    fold.observe(block)
    return readings([fold], info)


def both(path: Path, *, steps: int, device: str, missing: float) -> tuple[Readings, Readings]:
    """The readings of one random fit: as shown at its end, and from its file."""
    draw = random.Random(steps)  # noqa: S311 a test
    clock, live = FakeClock(), MemorySink()
    monitor = Monitor(clock)
    file = JsonlSink(path)
    probe = Random(steps, missing)
    parts = RunParts(info=RunInfo(device=device), probes=[probe], sinks=[live, file])
    parts.log_every = 10**9  # one window: the whole fit
    monitor.start(parts)
    for _ in range(steps):
        monitor.recorder.boundary()
        for phase in draw.sample(PHASES, 3):
            monitor.recorder.enter(phase)
            clock.advance(ns=draw.randrange(1, 10**6))
            monitor.recorder.leave()
        monitor.recorder.enter(Phase.FORWARD)
        clock.advance(ms=10)
        monitor.recorder.leave()
        monitor.micro_batch(None, None, complete=True)
        monitor.recorder.last_hook_done()
    monitor.finish("finished")
    assert monitor.guard.faults == {}
    ((_, shown),) = live.shown
    return shown, offline(file.path)


def assert_equal(shown: Readings, read: Readings) -> None:
    """Every reading, its interval and its count."""
    assert shown.keys() == read.keys()
    for name, reading in shown.items():
        other = read[name]
        assert (reading.unit, reading.n) == (other.unit, other.n), name
        for field in ("value", "low", "high"):
            found, expected = getattr(reading, field), getattr(other, field)
            assert (found is None) == (expected is None), (name, field)
            assert found is None or found == pytest.approx(expected, rel=1e-9), (name, field)


def test_readings_are_the_same_live_and_from_disk(tmp_path: Path) -> None:
    """Through the codec and in other blocks."""
    shown, read = both(tmp_path / "steps-rank0.jsonl", steps=9000, device="cuda", missing=0.2)

    assert_equal(shown, read)
    assert sum(reading.value is not None for reading in shown.values()) > 30


@settings(max_examples=40, deadline=None)
@given(
    steps=some.integers(1, 200),
    device=some.sampled_from(["cpu", "cuda"]),
    missing=some.floats(0.0, 1.0),
)
def test_of_any_fit_they_are_the_same(steps: int, device: str, missing: float) -> None:
    """However short, and however little of it was measured."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "steps-rank0.jsonl"

        assert_equal(*both(path, steps=steps, device=device, missing=missing))
