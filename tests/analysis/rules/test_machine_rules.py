"""Rules about the machine: planted trouble is named with its steps, a healthy machine is not."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from analysis.summary.test_machine import hot, run_of, scattered
from support.machines import COOL, Change, S, nothing, plant_machine

from trainperf.analysis.rules import diagnose
from trainperf.analysis.rules.base import Evidence, Rule
from trainperf.analysis.rules.machine.device_shared import device_shared
from trainperf.analysis.rules.machine.device_throttled import device_throttled
from trainperf.analysis.rules.machine.host_pressure import host_pressure
from trainperf.analysis.rules.machine.host_shared import host_shared
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import examine
from trainperf.core.artifacts.machine import Neighbour


RULES = (device_throttled, device_shared, host_shared, host_pressure)
HALF = (40, 80)
HOT = hot(*HALF)


def between(low: int, high: int, change: dict[str, float | None]) -> Change:
    """Only then."""
    return lambda second: change if low < second <= high else {}


def evidence(
    path: Path,
    slower: Callable[[float], float] = HOT,
    *,
    host: Change = nothing,
    device: Change = nothing,
    neighbours: tuple[Neighbour, ...] = (),
    seed: int = 0,
) -> Evidence:
    """Two minutes of a run, and its machine."""
    run = run_of(path, scattered(120, slower, seed))
    plant_machine(run, 120, host=host, device=device, neighbours=neighbours)
    return examine(Run.open(run))


def test_a_hot_gpu_is_named_with_its_steps_its_clock_and_what_it_costs(tmp_path: Path) -> None:
    """The sentence that one wants to read."""
    hot_gpu = {"sm_mhz": 1305.0, "reasons": 0x40, "celsius": 88.0}
    finding = device_throttled(evidence(tmp_path, device=between(*HALF, hot_gpu)))

    assert finding is not None
    assert finding.title.startswith("steps ")
    assert finding.title.endswith("were 12 % slower: the GPU ran at 1,305 MHz (thermal)")
    assert finding.fraction == pytest.approx(40 / 124.3 * 0.12 / 1.12 * 1.03, abs=0.006)
    assert any("88 °C" in line for line in finding.evidence)


def test_troubles_that_nothing_tells_apart_say_so(tmp_path: Path) -> None:
    """Each might be the only one that costs anything."""
    facts = evidence(
        tmp_path,
        hot(*HALF, 1.3),
        host=between(*HALF, {"cpu_busy": 14.0}),
        device=between(*HALF, {"reasons": 0x40}),
    )

    for finding in (device_throttled(facts), host_shared(facts)):
        assert finding is not None
        assert "in 100 % of these steps the machine had another trouble too" in finding.evidence


@pytest.mark.parametrize("ends", [80, 120])
def test_a_change_that_the_machine_explains_is_told_once(tmp_path: Path, ends: int) -> None:
    """No trace has to be captured to find out what the clock says."""
    hot_gpu = {"sm_mhz": 1305.0, "reasons": 0x40}
    slower = hot(40, ends, 1.12)
    explained = evidence(tmp_path / "a", slower, device=between(40, ends, hot_gpu))
    elsewhere = evidence(tmp_path / "b", slower, device=between(0, 20, hot_gpu))

    assert [each.id for each in diagnose(explained)] == ["device_throttled"]
    assert "slower_since" in {each.id for each in diagnose(elsewhere)}


def test_a_power_brake_has_another_remedy_than_heat(tmp_path: Path) -> None:
    """No fan helps there."""
    finding = device_throttled(evidence(tmp_path, device=between(*HALF, {"reasons": 0x80})))

    assert finding is not None
    assert "(power brake)" in finding.title
    assert "power" in finding.action


def test_a_gpu_that_is_hot_all_along_has_no_gain_to_name(tmp_path: Path) -> None:
    """There is nothing to compare with, but there is something to mend."""
    facts = evidence(
        tmp_path, device=lambda _: {"sm_mhz": 1200.0, "reasons": 0x20, "celsius": 90.0}
    )
    finding = device_throttled(facts)

    assert finding is not None
    assert "1,200 MHz (thermal)" in finding.title
    assert "1,200 of 1,980 MHz" in finding.evidence
    assert finding.gain_upper_bound is None
    assert finding in diagnose(facts)


def test_the_power_limit_of_a_large_model_is_no_finding(tmp_path: Path) -> None:
    """A healthy H200 is there all the time; its clock says so and its steps are even."""
    assert COOL["reasons"] == 0x04
    assert device_throttled(evidence(tmp_path, lambda _: 1.0)) is None


def test_another_process_on_the_gpu_is_named(tmp_path: Path) -> None:
    """With what it took."""
    other = Neighbour(at_ns=50 * S, pid=99, name="jupyter", device=0, memory_bytes=1 << 30)
    busy = between(*HALF, {"others": 1.0, "others_busy": 0.4})
    finding = device_shared(evidence(tmp_path, hot(*HALF, 1.5), device=busy, neighbours=(other,)))

    assert finding is not None
    assert "were 50 % slower: jupyter (99) used the GPU too" in finding.title
    assert "40 % of its multiprocessors' time" in finding.evidence


def test_several_others_on_the_gpu_are_counted(tmp_path: Path) -> None:
    """In words that are one."""
    busy = between(*HALF, {"others": 2.0, "others_busy": 0.4})
    finding = device_shared(evidence(tmp_path, hot(*HALF, 1.5), device=busy))

    assert finding is not None
    assert "2 other processes on it" in finding.evidence


def test_what_a_host_does_not_tell_is_not_said_to_be_nothing(tmp_path: Path) -> None:
    """No *0 B left* where the free memory is not known."""
    short = between(*HALF, {"memory_pressure": 0.3, "memory_free": None})
    finding = host_pressure(evidence(tmp_path, hot(*HALF, 1.2), host=short))

    assert finding is not None
    assert finding.evidence == ()


def test_a_notebook_that_only_holds_memory_is_none(tmp_path: Path) -> None:
    """It computes nothing, whatever else made steps slow."""
    idle = between(*HALF, {"others": 1.0, "others_busy": 0.0})

    assert device_shared(evidence(tmp_path, hot(*HALF, 1.5), device=idle)) is None


def test_a_busy_neighbour_on_the_host_is_named(tmp_path: Path) -> None:
    """With the CPUs that it kept busy."""
    other = Neighbour(at_ns=50 * S, pid=99, name="ffmpeg", cpus=11.0)
    busy = between(*HALF, {"cpu_busy": 14.0, "waited": 0.3})
    finding = host_shared(evidence(tmp_path, hot(*HALF, 1.3), host=busy, neighbours=(other,)))

    assert finding is not None
    assert "were 30 % slower: ffmpeg (99) kept 12.0 CPUs busy" in finding.title
    assert "the training thread had no CPU 30 % of that time" in finding.evidence


def test_neighbours_all_along_count_where_the_thread_lacks_a_cpu(tmp_path: Path) -> None:
    """Otherwise there were CPUs for both."""
    lacking = evidence(tmp_path / "a", host=lambda _: {"cpu_busy": 14.0, "waited": 0.3})
    enough = evidence(tmp_path / "b", host=lambda _: {"cpu_busy": 14.0})

    assert host_shared(lacking) is not None
    assert host_shared(enough) is None


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"memory_pressure": 0.3, "swapped": 5e7}, "waited for memory 30 % of the time"),
        ({"memory_pressure": None, "swapped": 5e7}, "the host swapped 50.0 MB/s"),
        ({"io_pressure": 0.6}, "waited for a disk 60 % of the time"),
        (
            {"net_retransmitted": 80.0, "net_segments": 900.0},
            "80 TCP segments per second",
        ),
    ],
)
def test_a_host_under_pressure_is_named_by_what_it_lacks(
    change: dict[str, float | None], words: str, tmp_path: Path
) -> None:
    """Memory, a disk, the network."""
    finding = host_pressure(evidence(tmp_path, hot(*HALF, 1.2), host=between(*HALF, change)))

    assert finding is not None
    assert "were 20 % slower" in finding.title
    assert words in finding.title


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
@pytest.mark.parametrize("seed", range(4))
def test_a_machine_whose_trouble_costs_nothing_gives_no_finding(
    rule: Rule, seed: int, tmp_path: Path
) -> None:
    """Everything comes and goes, and steps stay as they are: chance does not accuse."""
    facts = evidence(
        tmp_path,
        lambda _: 1.0,
        host=lambda s: {"cpu_busy": 9.0, "io_pressure": 0.5} if (s // 10 + seed) % 3 == 0 else {},
        device=lambda s: {"reasons": 0x20, "others": 1.0} if (s // 7 + seed) % 4 == 0 else {},
        seed=seed,
    )

    assert rule(facts) is None


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_slow_steps_that_the_machine_has_no_part_in_are_not_blamed_on_it(
    rule: Rule, tmp_path: Path
) -> None:
    """A healthy machine beside steps that are slow for reasons of their own."""
    assert rule(evidence(tmp_path, hot(*HALF, 1.5))) is None


RECORDED = Path(__file__).parent / "recorded"
"""45 s of a small model on two cores of a quiet AMD EPYC, its machine beside it."""


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.__name__)
def test_a_recorded_healthy_machine_gives_no_finding(rule: Rule, tmp_path: Path) -> None:
    """Although something else was on that host for a second."""
    for file in RECORDED.glob("*.gz"):
        (tmp_path / file.stem).write_bytes(gzip.decompress(file.read_bytes()))
    facts = examine(Run.open(tmp_path))
    machine = facts.summary.machine

    assert machine is not None
    assert machine.hosts[0].samples > 40
    assert [cause.cause for cause in machine.causes] == ["host shared"]
    assert rule(facts) is None
