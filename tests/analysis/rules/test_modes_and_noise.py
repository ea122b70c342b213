"""Rules about switches left on, and about runs that nothing can be concluded from."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from support.audits import evidence_of, product
from support.runs import WARMUP_STEPS, RankSpec, make_info, make_step, make_steps, summary_of

from trainperf.analysis.rules.base import Evidence
from trainperf.analysis.rules.fit.noisy_run import noisy_run
from trainperf.analysis.rules.host.debug_modes import debug_modes
from trainperf.analysis.rules.host.garbage import garbage
from trainperf.core.phases import Tag
from trainperf.core.steps.records import Scalar


MS = 1_000_000
SPLIT = ("phase_forward_s", "phase_backward_s", "phase_optimizer_s", "phase_other_s")


def evidence(
    path: Path,
    *,
    config: Mapping[str, Scalar] | None = None,
    hardware: Mapping[str, Scalar] | None = None,
    device: str = "cpu",
    world_size: int = 1,
) -> Evidence:
    """Two hundred steps of 20 + 30 ms."""
    info = make_info(device=device, config=config, hardware=hardware, world_size=world_size)
    steps = make_steps(200, forward=20, backward=30)
    return Evidence(summary=summary_of(path, [RankSpec(steps=steps, info=info)]))


def test_anomaly_detection_is_severe_and_without_an_audit_unbounded(tmp_path: Path) -> None:
    """It multiplies forward and backward by a factor that nobody has measured."""
    finding = debug_modes(evidence(tmp_path, config={"detect_anomaly": True}))

    assert finding is not None
    assert (finding.severity, finding.gain_upper_bound) == ("high", None)
    assert finding.title == "detect_anomaly is on in training"


def test_what_the_operators_need_bounds_what_anomaly_detection_costs(tmp_path: Path) -> None:
    """Their floors are 5 and 10 of 50 ms in forward and backward, in steps of 60."""
    uses = [
        product("mm", 6, flops=5 * 10**9),
        product("mm", 12, flops=10**10, part="backward"),
    ]
    known = evidence_of(tmp_path, uses)
    run = msgspec.structs.replace(known.summary.run, config={"detect_anomaly": True})
    summary = msgspec.structs.replace(known.summary, run=run)

    finding = debug_modes(replace(known, summary=summary))

    assert finding is not None
    assert finding.fraction == pytest.approx(35 / 60, abs=0.001)

    # In a loop that brackets nothing all the work is outside every phase.
    readings = {
        name: msgspec.structs.replace(
            reading, value={"phase_other_s": 0.06}.get(name) if name in SPLIT else reading.value
        )
        for name, reading in summary.readings.items()
    }
    whole = debug_modes(replace(known, summary=msgspec.structs.replace(summary, readings=readings)))

    assert whole is not None
    assert whole.fraction == pytest.approx(45 / 60, abs=0.001)

    # An audited step of another size has floors of its own, not theirs.
    unlike = debug_modes(replace(known, summary=summary, typical=None))

    assert unlike is not None
    assert unlike.gain_upper_bound is None


def test_several_switches_are_one_finding(tmp_path: Path) -> None:
    """The most expensive one is what to do about first."""
    config: dict[str, Scalar] = {"detect_anomaly": True, "deterministic": True}

    finding = debug_modes(evidence(tmp_path, config=config))

    assert finding is not None
    assert finding.title == "detect_anomaly and deterministic are on in training"
    assert finding.action.startswith("Trainer(detect_anomaly=False)")


@pytest.mark.parametrize(
    ("cpus", "threads", "device", "found"),
    [(8, 1, "cpu", True), (8, 8, "cpu", False), (2, 1, "cpu", False), (8, 1, "cuda", False)],
)
def test_one_thread_on_a_machine_of_many_is_a_finding(
    tmp_path: Path, cpus: int, threads: int, device: str, *, found: bool
) -> None:
    """Where the model runs on the CPU, and there are some to spare."""
    hardware: dict[str, Scalar] = {"cpu_count": cpus, "threads": threads}

    assert (debug_modes(evidence(tmp_path, hardware=hardware, device=device)) is not None) is found


@pytest.mark.parametrize(("cpus", "found"), [(64, True), (8, False)])
def test_one_thread_of_a_rank_is_a_finding_where_its_share_of_the_host_is_more(
    tmp_path: Path, cpus: int, *, found: bool
) -> None:
    """Torchrun gives each rank one thread: eight CPUs of sixty-four lie idle, one of eight not."""
    hardware: dict[str, Scalar] = {"cpu_count": cpus, "host_cpus": cpus, "threads": 1}

    finding = debug_modes(evidence(tmp_path, hardware=hardware, world_size=8))

    assert (finding is not None) is found
    assert finding is None or "OMP_NUM_THREADS=8" in finding.action


@pytest.mark.parametrize(("workers", "found"), [(0, True), (1, True), (4, False)])
def test_one_thread_beside_workers_is_what_data_wait_advises(
    tmp_path: Path, workers: int, *, found: bool
) -> None:
    """Where they have use for half of the CPUs."""
    steps = evidence(
        tmp_path, hardware={"cpu_count": 8, "threads": 1}, config={"num_workers": workers}
    )

    assert (debug_modes(steps) is not None) is found


def test_nothing_switched_on_is_no_finding(tmp_path: Path) -> None:
    """As recorded."""
    config: dict[str, Scalar] = {"detect_anomaly": False, "deterministic": False}

    assert debug_modes(evidence(tmp_path, config=config)) is None


def spread(path: Path, *lengths_ms: float, **more_ms: float) -> Evidence:
    """Steps that take these lengths in turn."""
    steps = [
        make_step(
            index,
            tags=int(Tag.WARMUP) if index < WARMUP_STEPS else 0,
            forward=lengths_ms[index % len(lengths_ms)],
            **more_ms,
        )
        for index in range(400)
    ]
    return Evidence(summary=summary_of(path, [RankSpec(steps=steps)]))


def test_steps_that_differ_by_half_allow_no_conclusion(tmp_path: Path) -> None:
    """And nothing is promised."""
    finding = noisy_run(spread(tmp_path, 10, 12, 14, 16, 18))

    assert finding is not None
    assert (finding.fraction, finding.confidence) == (None, "low")


def test_a_slow_step_now_and_then_is_no_noise(tmp_path: Path) -> None:
    """The middle half does not see it: logging, a checkpoint, a collection."""
    assert noisy_run(spread(tmp_path, *[10.0] * 9, 30)) is None


def test_noise_of_a_loader_is_the_loaders(tmp_path: Path) -> None:
    """Workers bring batches in bursts."""
    assert noisy_run(spread(tmp_path, 10, 20, 30, 40, 50, data_wait=10)) is None


def collected(path: Path, every: int, pause_ms: float, number: int = 400) -> Evidence:
    """Steps of 10 ms, some of which wait for the collector."""
    steps = []
    for index in range(number):
        paused = every and index % every == every - 1
        steps.append(
            make_step(
                index,
                tags=int(Tag.WARMUP) if index < WARMUP_STEPS else int(Tag.GC) if paused else 0,
                forward=10 + (pause_ms if paused else 0),
                facts={"gc_ns": round(pause_ms * MS) if paused else 0},
            )
        )
    return Evidence(summary=summary_of(path, [RankSpec(steps=steps)]))


def test_regular_collections_are_a_finding(tmp_path: Path) -> None:
    """30 ms in every twentieth step of 10 ms: 600 of 4,600 ms."""
    finding = garbage(collected(tmp_path, 20, 30))

    assert finding is not None
    assert finding.fraction == pytest.approx(0.6 / 4.6)


def test_the_collection_of_the_first_step_is_none(tmp_path: Path) -> None:
    """0.2 s of a fit of 4 s, as every short script has it; the steps after it collect nothing."""
    steps = [
        make_step(
            index,
            tags=int(Tag.WARMUP) if index < WARMUP_STEPS else 0,
            forward=10 if index else 230,
            facts={"gc_ns": 0 if index else 200 * MS},
        )
        for index in range(400)
    ]

    assert garbage(Evidence(summary=summary_of(tmp_path, [RankSpec(steps=steps)]))) is None


def test_a_few_collections_in_a_short_fit_are_none(tmp_path: Path) -> None:
    """The start of a process has some."""
    assert garbage(collected(tmp_path, 150, 300)) is None
