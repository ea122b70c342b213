"""The machine joined to the steps: planted stretches of time and clocks come back."""

import random
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from support.machines import S, plant_machine
from support.runs import RankSpec, make_info, make_run_dir, make_step

from trainperf.analysis.run.directory import Run
from trainperf.analysis.run.machine import read_machines
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.schema import CauseFacts, MachineFacts
from trainperf.core.artifacts.machine import Neighbour
from trainperf.core.phases import Tag
from trainperf.core.steps.records import StepRecord
from trainperf.core.window import RunWindow


STEP_MS = 50.0


def scattered(seconds: int, slower: Callable[[float], float], seed: int = 0) -> list[StepRecord]:
    """Steps of 50 ms, give or take 3 %, times what the machine makes of it at that second."""
    scatter = random.Random(seed)  # noqa: S311 noise, no secret
    steps: list[StepRecord] = []
    clock = 0
    while clock < seconds * S:
        ms = STEP_MS * scatter.gauss(1.0, 0.03) * slower(clock / S)
        facts = {"tokens_effective": 1000, "tokens_padded": 1000, "samples": 8}
        tags = int(Tag.WARMUP) if len(steps) < 12 else 0
        index = len(steps)
        steps.append(make_step(index, tags=tags, start_ns=clock, facts=facts, forward=ms))
        clock += steps[-1].wall_ns
    return steps


def hot(low: int, high: int, by: float = 1.12) -> Callable[[float], float]:
    """Slower between two seconds."""
    return lambda second: by if low <= second < high else 1.0


def run_of(path: Path, steps: list[StepRecord]) -> Path:
    """A run on a GPU with those steps."""
    return make_run_dir(path, [RankSpec(steps=steps, info=make_info(device="cuda"))])


def machine_of(run: Path) -> MachineFacts:
    """What its summary has of the machine."""
    return summarize(Run.open(run)).machine


def cause_of(run: Path, cause: str) -> CauseFacts:
    """The one of that name, which must be there."""
    return next(each for each in machine_of(run).causes if each.cause == cause)


Plan = Callable[[float], dict[str, float]]


def between(low: int, high: int, **values: float) -> Plan:
    """What was sampled between two seconds."""
    return lambda second: values if low < second <= high else {}


NOTHING = between(0, 0)
"""As it always is."""


def flickering(second: float) -> dict[str, float]:
    """Reasons are those of a moment, once a second: what flickers holds all the time."""
    if not 60 < second <= 80:
        return {}
    return {"sm_mhz": 1305, "reasons": 0x20 * bool(second % 3 or second in (63, 78)), "celsius": 88}


NEITHER = between(30, 60, memory_pressure=0.4), between(80, 110, reasons=0x80)
"""Two causes at different times."""

PLANTS: dict[
    str, tuple[int, Callable[[float], float], Plan, Plan, str, tuple[float, ...], dict[str, object]]
] = {
    # 12 % slower at 1,305 MHz: 20 of 120 seconds, of which 12 in 112 were lost.
    "a thermal stretch": (
        120,
        hot(60, 80),
        NOTHING,
        flickering,
        "thermal",
        (60, 80),
        {
            "shown": True,
            "lasted": True,
            "slower": pytest.approx(0.12, abs=0.01),
            "fraction": pytest.approx(20 / 120, abs=0.01),
            "lost_fraction": pytest.approx(20 / 120 * 0.12 / 1.12, abs=0.004),
        },
    ),
    # A neighbour on a host with CPUs to spare costs nothing.
    "a stretch that is no slower": (
        120,
        lambda _: 1.0,
        between(30, 60, cpu_busy=6.0),
        NOTHING,
        "host shared",
        (30, 60),
        {"shown": False, "slower": pytest.approx(0.0, abs=0.01)},
    ),
    # Both are compared with the rest, not with each other.
    **{
        f"{cause} beside another cause": (
            150,
            lambda s: 1.3 if 30 <= s < 60 else 1.1 if 80 <= s < 110 else 1.0,
            *NEITHER,
            cause,
            when,
            {"slower": pytest.approx(slower, abs=0.02)},
        )
        for cause, when, slower in (("memory", (30, 60), 0.30), ("power brake", (80, 110), 0.10))
    },
    # Six steps of 2 ms in 20: five run as ever, and one waits 8 ms for the CPU.
    "turns of which most steps see nothing": (
        30,
        lambda s: 0.2 if 10 <= s < 20 and s % 0.02 < 0.0021 else 0.04,
        between(10, 20, cpu_busy=6.0),
        NOTHING,
        "host shared",
        (10, 20),
        {"shown": True, "slower": pytest.approx(0.67, abs=0.15)},
    ),
    # A sample speaks of the time since the one before.
    "two samples": (
        30,
        lambda _: 1.0,
        NOTHING,
        between(2, 4, reasons=0x20),
        "thermal",
        (2, 4),
        {"slower": pytest.approx(0.0, abs=0.05)},
    ),
}
"""Seconds, what steps and samples have in them, a cause, when it held, and what it did."""


@pytest.mark.parametrize(
    ("seconds", "slower", "host", "device", "cause", "when", "fields"),
    PLANTS.values(),
    ids=PLANTS,
)
def test_a_stretch_comes_back_with_its_steps_and_its_cost(  # noqa: PLR0913 columns of a table
    *,
    seconds: int,
    slower: Callable[[float], float],
    host: Plan,
    device: Plan,
    cause: str,
    when: tuple[float, float],
    fields: dict[str, object],
    tmp_path: Path,
) -> None:
    """Step numbers to a second's worth; clocks in it and outside."""
    steps = scattered(seconds, slower)
    run = run_of(tmp_path, steps)
    plant_machine(run, seconds, host=host, device=device)
    facts = cause_of(run, cause)

    middles = [step.start_ns + step.wall_ns / 2 for step in steps]
    inside = [n for n, at in enumerate(middles) if when[0] * S < at <= when[1] * S]
    assert (facts.first_step, facts.last_step, facts.steps) == (
        inside[0],
        inside[-1],
        len(inside),
    )
    assert {name: getattr(facts, name) for name in fields} == fields
    if device is flickering:
        assert facts.values["sm_mhz"] == 1305
        assert facts.values["outside_sm_mhz"] == pytest.approx(1980, abs=40)


def test_who_is_named_by_the_time_it_was_there(tmp_path: Path) -> None:
    """Another process that came later, or was on a device, is not the host's neighbour."""
    run = run_of(tmp_path, scattered(120, hot(40, 80, 1.4)))
    named = [
        Neighbour(at_ns=45 * S, pid=7, name="blender", cpus=3.0),
        Neighbour(at_ns=60 * S, pid=8, name="make", cpus=5.0),
        Neighbour(at_ns=100 * S, pid=9, name="late", cpus=9.0),
        Neighbour(at_ns=50 * S, pid=10, name="on device", device=0),
    ]
    plant_machine(
        run, 120, host=lambda s: {"cpu_busy": 9.0} if 40 < s <= 80 else {}, neighbours=named
    )

    assert cause_of(run, "host shared").who == ("make (8)", "blender (7)")


def test_a_cause_that_two_attempts_had_is_one(tmp_path: Path) -> None:
    """Times begin anew with each, steps are numbered on; the clock in it is the mean of both."""
    parts = [scattered(60, hot(20, 40)), scattered(60, hot(10, 50))]
    infos = [make_info(device="cuda"), msgspec.structs.replace(make_info(device="cuda"), attempt=1)]
    make_run_dir(
        tmp_path,
        [
            RankSpec(steps=steps, info=info, attempt=place)
            for place, (steps, info) in enumerate(zip(parts, infos, strict=True))
        ],
    )
    for attempt, (begin, end, mhz) in enumerate(((20, 40, 1200), (10, 50, 1500))):

        def device(s: int, begin: int = begin, end: int = end, mhz: int = mhz) -> dict[str, float]:
            return {"reasons": 0x20, "sm_mhz": mhz} if begin < s <= end else {"sm_mhz": 1900}

        plant_machine(tmp_path, 60, attempt=attempt, device=device)

    machine = machine_of(tmp_path)
    (cause,) = machine.causes

    assert [host.samples for host in machine.hosts] == [122]
    assert cause.first_step < len(parts[0]) <= cause.last_step
    assert not cause.lasted
    assert cause.fraction == pytest.approx((20 + 40) / 120, abs=0.02)
    assert cause.values["sm_mhz"] == pytest.approx((20 * 1200 + 40 * 1500) / 60, rel=0.02)
    assert cause.values["outside_sm_mhz"] == pytest.approx(1900, rel=0.02)
    assert cause.slower == pytest.approx(0.12, abs=0.015)


def test_another_host_is_placed_by_when_its_fit_began(tmp_path: Path) -> None:
    """Its clock has another zero: it began five seconds after rank 0."""
    steps = scattered(120, hot(60, 80))
    later = msgspec.structs.replace(
        make_info(rank=1, world_size=2, device="cuda"), started_at="2026-11-01T12:00:05+00:00"
    )
    infos = [make_info(world_size=2, device="cuda"), later]
    run = make_run_dir(tmp_path, [RankSpec(steps=steps, info=info) for info in infos])
    plant_machine(run, 120)
    plant_machine(
        run, 120, rank=1, name="node1", device=lambda s: {"reasons": 0x20} if 55 < s <= 75 else {}
    )
    facts = cause_of(run, "thermal")

    assert facts.host == "node1"
    assert facts.slower == pytest.approx(0.12, abs=0.01)


def test_a_file_of_an_older_version_is_read(tmp_path: Path) -> None:
    """It has columns that nobody samples any more, and a line that says that it ended."""
    run = run_of(tmp_path, scattered(30, lambda _: 1.0))
    path = plant_machine(run, 30, devices=())
    header, *samples = [msgspec.json.decode(line) for line in path.read_bytes().splitlines()]
    header["columns"].insert(2, "net_sent")
    lines = [header, *([row[0], row[1], 5e6, *row[2:]] for row in samples)]
    lines.append({"kind": "end", "samples": 31, "sampler_s": 0.2})
    path.write_bytes(b"".join(msgspec.json.encode(line) + b"\n" for line in lines))
    ((series,), problems) = read_machines(Run.open(run))

    assert problems == []
    assert len(series) == 31
    assert (series.column("net_sent") == 5e6).all()
    assert "net_sent" not in machine_of(run).hosts[0].means
    assert machine_of(run).hosts[0].means["cpu_own"] == pytest.approx(2.0)


@pytest.mark.parametrize(
    ("edit", "samples"),
    [
        (lambda content: content[:-20], 30),  # killed with the fit
        (lambda content: content.replace(b"],", b"]", 1) + b"[1,2]\n", None),
    ],
    ids=["cut short", "damaged"],
)
def test_a_file_is_read_up_to_its_last_whole_line_or_is_a_warning(
    edit: Callable[[bytes], bytes], samples: int | None, tmp_path: Path
) -> None:
    """A report is not lost for it."""
    run = run_of(tmp_path, scattered(30, lambda _: 1.0))
    path = plant_machine(run, 30)
    path.write_bytes(edit(path.read_bytes()))
    summary = summarize(Run.open(run))
    path.unlink()

    assert (summary.machine and summary.machine.hosts[0].samples) == samples
    named = any("machine-rank0.jsonl" in warning for warning in summary.warnings)
    assert named is (samples is None)
    # As all runs of earlier versions.
    assert summarize(Run.open(run)).machine is None


def test_a_window_has_the_machine_of_its_own_steps(tmp_path: Path) -> None:
    """Twenty of 120 seconds at 600 W, before anything was hot."""
    run = run_of(tmp_path, scattered(120, hot(60, 80)))
    plant_machine(
        run, 120, device=lambda s: {"sm_mhz": 1305, "reasons": 0x20} if 60 < s <= 80 else {}
    )

    summary = summarize(Run.open(run, RunWindow(first=0, last=399)))

    (host,) = summary.machine.hosts
    assert host.devices[0].worst["sm_mhz"] == 1980
    assert host.samples == pytest.approx(20, abs=2)
