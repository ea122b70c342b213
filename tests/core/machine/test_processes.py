"""Whether the process that wrote a run is still there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainperf.core.machine.processes import has_died, this_process


linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are seen in /proc")
ASK = "from trainperf.core.machine.processes import this_process as t; print(t(), flush=True)"


@linux
def test_a_process_that_runs_has_not_died() -> None:
    """This one."""
    assert has_died(this_process()) is False


@linux
def test_a_process_that_ended_has_died_also_before_its_parent_asks() -> None:
    """It is a zombie first, then gone."""
    child = subprocess.Popen([sys.executable, "-c", ASK], stdout=subprocess.PIPE, text=True)
    identity = child.stdout.readline().strip()
    child.stdout.read()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    zombie = has_died(identity)
    child.communicate(timeout=60)

    assert (zombie, has_died(identity)) == (True, True)


@linux
def test_a_number_that_was_given_away_again_is_another_process() -> None:
    """Its start tells."""
    space, pid, started = this_process().rsplit("/", 2)

    assert has_died(f"{space}/{pid}/{int(started) - 1}") is True


@pytest.mark.parametrize("identity", ["", "x", "other-boot/pid:[1]/1/2", "//", "/1/2"])
def test_what_another_machine_wrote_is_not_judged(identity: str) -> None:
    """Nor what has no identity."""
    assert has_died(identity) is None


def test_without_proc_nobody_has_an_identity(tmp_path: Path) -> None:
    """As on macOS."""
    assert this_process(tmp_path) == ""
    assert has_died("boot/pid:[1]/1/2", tmp_path) is None


@pytest.mark.parametrize("shown", [False, True], ids=["hidepid=2", "hidepid=1"])
@pytest.mark.parametrize(
    ("error", "died"),
    [(PermissionError, None), (ProcessLookupError, True)],
    ids=["it runs", "it has ended"],
)
def test_a_process_of_another_user_that_proc_hides_is_not_judged(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: type[OSError],
    *,
    shown: bool,
    died: bool | None,
) -> None:
    """A shared machine, on which the system says no more than that it may not be signalled."""
    (tmp_path / "sys/kernel/random").mkdir(parents=True)
    (tmp_path / "sys/kernel/random/boot_id").write_text("boot")
    (tmp_path / "self/ns").mkdir(parents=True)
    (tmp_path / "self/ns/pid").symlink_to("pid:[1]")
    if shown:
        (tmp_path / "4711").mkdir()

    def refuse(pid: int, signal: int) -> None:
        raise error(pid, signal)

    monkeypatch.setattr(os, "kill", refuse)

    assert has_died("boot/pid:[1]/4711/2", tmp_path) is died
