"""How long the training thread waited for a processor."""

from pathlib import Path

import pytest
from support.live import HostFit

from trainperf.recording.probes.processor_wait import WAITS, ProcessorWaitProbe


@pytest.mark.skipif(not WAITS.exists(), reason="not counted here")
def test_this_thread_s_own_waiting_can_be_read() -> None:
    """The kernel's file has what the probe reads."""
    fit = HostFit(ProcessorWaitProbe()).steps(2).finish()

    assert all(waited is not None and waited >= 0 for waited in fit.facts("waited_ns"))


def test_waiting_is_counted_from_reading_to_reading(tmp_path: Path) -> None:
    """What the thread had waited before the fit belongs to no step; no file is left open."""
    waits = tmp_path / "schedstat"
    waits.write_text("5 1000 1\n")
    before = len(list(Path("/proc/self/fd").iterdir()))
    fit = HostFit(ProcessorWaitProbe(waits)).steps(2, ms=10)
    waits.write_text("6 4000 2\n")
    fit.steps(1, ms=10).finish()

    assert fit.facts("waited_ns") == [0, 0, 3000]
    assert len(list(Path("/proc/self/fd").iterdir())) == before
