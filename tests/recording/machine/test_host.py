"""The host's counters as rates, from planted files of the kernel."""

from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import psutil
import pytest

from trainperf.recording.machine.host import HostSource
from trainperf.testing import FakeClock


FIELDS = "user nice system idle iowait irq softirq steal guest guest_nice"
Times = NamedTuple("Times", [(name, float) for name in FIELDS.split()])
"""Seconds of all CPUs, as psutil has them on Linux."""


class System:
    """Counters of two CPUs, which a test moves on."""

    def __init__(self, proc: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.proc, self.clock = proc, FakeClock()
        self.second = 0
        (proc / "pressure").mkdir()
        (proc / "5/task/6").mkdir(parents=True)
        self.write()
        monkeypatch.setattr(psutil, "cpu_times", self.times)
        monkeypatch.setattr(
            psutil, "swap_memory", lambda: SimpleNamespace(sin=self.second * 4096, sout=0)
        )
        monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=123))
        monkeypatch.setattr(
            psutil,
            "disk_io_counters",
            lambda: SimpleNamespace(
                read_bytes=self.second * 10**7, write_bytes=self.second * 10**6
            ),
        )

    def times(self) -> Times:
        """Half a CPU for users (all of it for a guest), a tenth stolen, a tenth waits for disks."""
        s = float(self.second)
        return Times(0.5 * s, 0.1 * s, 0.2 * s, 1.0 * s, 0.1 * s, 0, 0, 0.1 * s, 0.5 * s, 0)

    def write(self) -> None:
        """The kernel's files at this second."""
        s = self.second
        for place, name in enumerate(("cpu", "memory", "io"), start=1):
            (self.proc / "pressure" / name).write_text(
                f"some avg10=0.00 avg60=0.00 avg300=0.00 total={s * place * 100_000}\n"
                f"full avg10=0.00 avg60=0.00 avg300=0.00 total=99\n"
            )
        (self.proc / "5/task/6/schedstat").write_text(f"{s * 8 * 10**8} {s * 2 * 10**8} 17\n")

    def later(self, seconds: int) -> None:
        """So much later."""
        self.second += seconds
        self.write()
        self.clock.advance(ms=1000 * seconds)


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> System:
    """As it was when the fit began."""
    return System(tmp_path, monkeypatch)


def test_counters_become_rates_since_the_reading_before(system: System) -> None:
    """Whatever the time between two readings."""
    source = HostSource(system.clock, (5, 6), system.proc)
    system.later(1)
    first = source.read()
    system.later(4)
    second = source.read()

    assert first == pytest.approx(second)
    # All of user is a guest's, and is in `guest` once more.
    shares = {"cpu_busy": 0.8, "cpu_stolen": 0.1, "waited": 0.2}
    pressures = {"cpu_pressure": 0.1, "memory_pressure": 0.2, "io_pressure": 0.3}
    sizes = {"swapped": 4096, "disk_read": 10**7, "disk_written": 10**6, "memory_free": 123}
    assert second == pytest.approx({**shares, **pressures, **sizes})


def test_what_a_system_does_not_tell_has_a_reason_and_no_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container without disks; an old kernel without PSI."""
    monkeypatch.setattr(psutil, "disk_io_counters", lambda: None)
    source = HostSource(FakeClock(tick_ns=1), (1, 1), tmp_path)
    values = source.read()

    assert source.reasons.keys() == {"cpu_pressure", "memory_pressure", "io_pressure", "waited"}
    assert "cpu_pressure" not in values
    assert "disk_read" not in values
    assert "memory_free" in values


def test_a_file_of_psi_that_is_not_one_is_no_reading(system: System) -> None:
    """Or one that is disabled at run time: reading it fails."""
    source = HostSource(system.clock, (5, 6), system.proc)
    system.later(1)
    (system.proc / "pressure/cpu").write_text("what\n")
    (system.proc / "pressure/io").unlink()
    values = source.read()

    assert "cpu_pressure" not in values
    assert "io_pressure" not in values
    assert values["memory_pressure"] == pytest.approx(0.2)
