"""Every run has its shares, from whatever it has on disk."""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from support.doctor import Planted, make_capture
from support.light import CHIP, COMPUTE, MEMORY, make_audit
from support.runs import MS, RankSpec, make_info, make_steps, summary_of
from support.traces import TRACES, needs_traces

from trainperf.analysis.summary.breakdown import with_time_split
from trainperf.core.artifacts.audit import MeasuredChip
from trainperf.traces.capture_files import CaptureFacts, CaptureReport
from trainperf.traces.job_report import report
from trainperf.traces.results import TraceTotals


STEPS = make_steps(200, data_wait=10, forward=25, backward=50, optimizer=15)
PLAIN = Planted(steps=STEPS)
AUDIT = make_audit(
    msgspec.structs.replace(COMPUTE, host_s=0.060),
    msgspec.structs.replace(MEMORY, host_s=0.030),
    step=20,
)
AUDITED = replace(PLAIN, documents=(AUDIT, MeasuredChip(chip=CHIP)))
TRACED = TraceTotals(
    steps=3,
    step_s=0.1,
    gpu_busy_fraction=0.75,
    gpu_busy_s=0.075,
    compute_fraction=0.50,
    idle_host_bound_fraction=0.15,
    idle_sync_fraction=0.05,
    comm_exposed_s=0.020,
)


ON_DEVICE = replace(
    AUDITED,
    device="cuda",
    documents=(msgspec.structs.replace(AUDIT, device="cuda"), MeasuredChip(chip=CHIP)),
)

RUNS: dict[str, tuple[Planted, dict[str, object], list[object] | None]] = {
    "phases alone": (
        PLAIN,
        {"undivided": 0.9, "other": 0.1, "compute": None, "basis": "phases"},
        None,
    ),
    # The host's time there is that of launching; the whole step is the device's too.
    "phases of a device have no measured time": (
        ON_DEVICE,
        {"basis": "audit"},
        [pytest.approx(0.1), None, None, None],
    ),
    # A fifth of the time is exposed communication, a twentieth other work beside computing.
    "a trace on disk is what counts": (
        replace(PLAIN, capture=make_capture(TRACED)),
        {
            "launch": 0.15,
            "transfer": 0.05,
            "synchronisation": 0.25,
            "undivided": 0.50,
            "other": 0.05,
            "compute": None,
            "memory": None,
        },
        None,
    ),
    # A CPU's trace has operators, and no idle time to tell apart.
    "a trace without a device divides nothing": (
        replace(PLAIN, capture=make_capture(TraceTotals(steps=3, step_s=0.1), on_device=False)),
        {"basis": "phases"},
        None,
    ),
    # Over all steps: better than nothing, but a warm-up shows no speed of light.
    "a run that never settled": (
        replace(AUDITED, steps=STEPS[:9]),
        {"other": 0.1},
        [None, None, None, None],
    ),
}


@pytest.mark.parametrize(("planted", "shares", "measured"), RUNS.values(), ids=RUNS)
def test_a_run_is_divided_by_whatever_it_has(
    planted: Planted, shares: dict[str, object], measured: list[object] | None, tmp_path: Path
) -> None:
    """In summary.json, with what it stands on."""
    summary = planted.evidence(tmp_path).summary
    written = json.loads(msgspec.json.encode(summary))["dimensions"]
    divided = {**written["shares"], "basis": written["basis"]}
    light = summary.light

    assert {name: divided.get(name) for name in shares} == {
        name: pytest.approx(part) if isinstance(part, float) else part
        for name, part in shares.items()
    }
    assert (light and [each.measured_s for each in light.phases]) == measured
    if light is not None and planted.device == "cuda":
        assert [each.measured_s for each in light.operators] == [None, None]


def test_an_audited_run_divides_the_work_and_has_its_speed_of_light(tmp_path: Path) -> None:
    """60 ms of products and 30 of memory in a forward of 90, floors of a millisecond each."""
    steps = make_steps(200, data_wait=10, forward=90)
    summary = replace(AUDITED, steps=steps).evidence(tmp_path).summary

    assert summary.dimensions.shares["compute"] == pytest.approx(0.6, abs=1e-4)
    assert summary.dimensions.shares["memory"] == pytest.approx(0.3, abs=1e-4)
    step, forward, backward, optimizer = summary.light.phases
    assert (step.measured_s, step.floor_s) == pytest.approx((0.1, 0.002))
    assert step.over == pytest.approx(50)
    assert (forward.name, forward.over) == ("forward", pytest.approx(45))
    assert (backward.over, optimizer.over) == (None, None)
    names = [one.floor.use.name for one in summary.light.operators]
    assert names == ["aten.mm.default", "aten.add.Tensor"]
    assert summary.light.operators[0].share == pytest.approx(2 / 3)
    # Of the peak that was measured: no data sheet knows this chip.
    assert summary.value("mfu") is not None
    assert summary.readings["mfu"].reason is None


def test_waiting_for_ranks_is_synchronisation(tmp_path: Path) -> None:
    """Means over both ranks of 20 ms at the all-reduce and 10 ms before the fetch, of 100."""
    specs = [
        RankSpec(
            steps=make_steps(
                200,
                forward=70 - tail - loop,
                backward=30 + tail,
                loop=loop,
                facts={"tail_ns": tail * MS},
            ),
            info=make_info(rank=rank, world_size=2),
        )
        for rank, (tail, loop) in enumerate(((20, 0), (0, 10)))
    ]
    dimensions = summary_of(tmp_path, specs).dimensions

    assert dimensions.shares["synchronisation"] == pytest.approx(0.10 + 0.05)
    assert sum(dimensions.shares.values()) == pytest.approx(1.0)


@needs_traces
@pytest.mark.parametrize(
    "name",
    [
        "ddp_a100_rank0of2",
        "ddp_mi300x_rank0of8_rccl",
        "dlrm_a100_rank3of8",
        "resnet50_v100_workers0",
    ],
)
def test_real_traces_divide_the_whole_of_the_devices_time(name: str, tmp_path: Path) -> None:
    """Exposed communication and idle time as in the trace, and nothing twice."""
    (file,) = TRACES.glob(f"{name}*")
    read = report([file])
    capture = CaptureReport(
        ranks=read.ranks,
        capture=CaptureFacts(first_step=0, first_index=0, complete_steps=3),
    )
    dimensions = with_time_split(
        PLAIN.evidence(tmp_path).summary, None, None, (capture,)
    ).dimensions
    totals = read.ranks[0].totals

    assert sum(dimensions.shares.values()) == pytest.approx(1.0)
    assert dimensions.shares["undivided"] == totals.compute_fraction
    assert dimensions.shares["launch"] == totals.idle_host_bound_fraction
    assert dimensions.shares["synchronisation"] >= (totals.idle_sync_fraction or 0.0)
