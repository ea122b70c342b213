"""Collectives are counted in the phase that issued them, in a few steps, and never in a gap."""

import itertools
import os
from pathlib import Path

import psutil
import pytest
import torch
import torch.distributed as dist
from support.live import Heard, HostFit, Timeline, micro_batch_done

from trainperf.core.phases import Gap, Phase
from trainperf.recording.probes import collectives
from trainperf.recording.probes.collectives import (
    AGAIN_EVERY,
    FIRST,
    STEPS,
    CollectivesProbe,
    is_hardware,
    transport,
)
from trainperf.recording.recorder import Draft


pytestmark = pytest.mark.usefixtures("one_rank")


def trained(
    steps: int, *, group: object = None, disturbed_at: int = -1, device: str = "cpu"
) -> CollectivesProbe:
    """A fit with a collective in forward, two in the optimizer, and one in validation."""
    fit, probe = Timeline(), CollectivesProbe(device)
    probe.attach(fit.recorder)
    fit.recorder.on_close = probe.close

    def meet() -> None:
        dist.all_reduce(torch.ones(1), group=group)

    for step in range(steps):
        fit.recorder.boundary()
        fit.recorder.enter(Phase.FORWARD)
        meet()
        fit.recorder.leave()
        fit.recorder.enter(Phase.OPTIMIZER)
        meet()
        fit.recorder.enter(Phase.CALLBACKS)
        fit.recorder.leave()
        meet()
        fit.recorder.leave()
        if step == disturbed_at:
            fit.recorder.listener = Heard()
        fit.recorder.enter_gap(Gap.VALIDATION)
        meet()
        fit.recorder.leave()
        micro_batch_done(fit.recorder, complete=True)
        fit.recorder.last_hook_done()
    fit.recorder.boundary()
    return probe


def test_each_phase_has_the_collectives_that_it_issued() -> None:
    """Nested phases included; those of a gap are no step's."""
    assert trained(FIRST + STEPS + 1).config()["collectives"] == "forward 1, optimizer 2"


def test_a_group_of_its_own_counts_too() -> None:
    """As those of a device mesh are."""
    probe = trained(FIRST + STEPS + 1, group=dist.new_group([0]))

    assert probe.config()["collectives"] == "forward 1, optimizer 2"


@pytest.mark.parametrize(("device", "backend"), [("cpu", "gloo"), ("xla", None)])
def test_the_backend_is_that_of_the_device_that_trains(device: str, backend: str | None) -> None:
    """A process group may have one for each; gone at the end of the fit, it had it all the same."""
    assert trained(FIRST + STEPS + 1, device=device).config()["backend"] == backend


def test_nothing_is_said_before_a_step_was_counted() -> None:
    """A fit of a few steps."""
    assert trained(FIRST).config() == {}


def test_between_the_counted_steps_the_timeline_has_no_listener() -> None:
    """It costs nothing there."""
    fit, probe = Timeline(), CollectivesProbe("cpu")
    probe.attach(fit.recorder)
    listening = []
    for index in range(AGAIN_EVERY + FIRST + 1):
        probe.close(Draft(index, 0, 0, {}))
        listening.append(fit.recorder.listener is not None)

    assert sum(listening) == STEPS + 1
    assert listening[FIRST]
    assert listening[-1]


def test_a_profiler_that_listens_keeps_its_place() -> None:
    """The step in which it came is not counted, and its listener stays."""
    probe = trained(FIRST + STEPS + 1, disturbed_at=FIRST + 2)

    assert probe.config()["collectives"] == "forward 1, optimizer 2"
    probe.detach()
    assert isinstance(probe.recorder.listener, Heard)


def test_a_group_that_is_gone_amid_a_counted_step_does_not_reach_the_loop(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The timeline is switched in the loop itself; what a listener raises there would end it."""
    calls = itertools.count()

    def gone(_: object) -> int:
        if next(calls) > 3:
            raise RuntimeError("the process group was destroyed")
        return 0

    monkeypatch.setattr(collectives, "issued_in", gone)
    probe = CollectivesProbe("cpu")
    fit = HostFit(probe).steps(FIRST + 2)

    assert fit.monitor.recorder.listener is None
    assert len(fit.steps(STEPS).finish().sink.records) == FIRST + 2 + STEPS
    assert probe.config() == {}


LOG = """node7:919:919 [0] NCCL INFO NET/IB : No device found.
node7:919:919 [0] NCCL INFO NET/Socket : Using [0]ens3:172.31.12.210<0>
node7:919:1150 [0] NCCL INFO Channel 01/0 : 8[0] -> 15[7] via P2P/IPC/read
node7:926:1151 [7] NCCL INFO Channel 03/0 : 15[7] -> 6[6] [send] via NET/Socket/3
"""


@pytest.mark.parametrize(
    ("level", "named", "ways"),
    [
        ("INFO", "nccl.%p", "NET/Socket, P2P"),
        ("WARN", "nccl.%p", None),
        ("INFO", "", None),
        ("INFO", "missing", None),
    ],
)
def test_ways_of_nccl_are_read_where_the_user_has_it_write_them(
    tmp_path: Path, level: str, named: str, ways: str | None
) -> None:
    """And nowhere else; the lines are of reports in NVIDIA/nccl (226, 952)."""
    (tmp_path / f"nccl.{os.getpid()}").write_text(LOG)
    environment = {"NCCL_DEBUG": level}
    if named:
        environment["NCCL_DEBUG_FILE"] = str(tmp_path / named)

    assert transport(environment).get("nccl_ways") == ways


def test_the_rate_of_gloos_interface_is_that_which_the_system_tells() -> None:
    """By the variable that gloo reads; without it nobody knows which one it took."""
    name, stats = next((name, each) for name, each in psutil.net_if_stats().items() if each.isup)

    assert transport({"GLOO_SOCKET_IFNAME": name})["gloo_bytes_per_s"] == stats.speed * 1e6 / 8
    assert transport({})["gloo_bytes_per_s"] is None


@pytest.mark.parametrize(
    ("links", "hardware"),
    [(("device",), True), ((), False), (("device", "master"), False)],
    ids=["a card", "veth, docker0, br-, lo, tun", "a card that is a part of a bond"],
)
def test_an_interface_that_leads_out_is_told_by_the_system(
    tmp_path: Path,
    links: tuple[str, ...],
    hardware: bool,  # noqa: FBT001 pytest passes it by name
) -> None:
    """A virtual one says that it is the fastest, and leads to no other host."""
    for name in links:
        (tmp_path / "any0" / name).mkdir(parents=True)

    assert is_hardware(tmp_path / "any0") is hardware


def test_the_fastest_interface_is_none_that_only_seems_to_be() -> None:
    """Of this machine."""
    name = str(transport({})["fastest_interface"])

    assert not name or (Path("/sys/class/net") / name / "device").exists()
