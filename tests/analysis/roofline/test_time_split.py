"""The shares of a step by what it is spent on, from planted phases, audits and traces."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.light import COMPUTE, MEMORY, make_light, make_use

from trainperf.analysis.roofline.time_split import dimensions
from trainperf.traces.results import TraceTotals


PHASES: Mapping[str, float] = {
    "data_wait": 0.010,
    "h2d": 0.005,
    "forward": 0.020,
    "backward": 0.040,
    "optimizer": 0.010,
    "callbacks": 0.005,
    "loop": 0.008,
    "other": 0.002,
}
"""A step of 100 ms, of which 70 are forward, backward and update."""

WAITS = {"backward": 0.010, "loop": 0.003}
"""Ten of the seventy are spent waiting for ranks."""

TRACE = TraceTotals(
    steps=3,
    step_s=0.1,
    gpu_busy_fraction=0.65,
    gpu_busy_s=0.065,
    compute_fraction=0.50,
    comm_exposed_s=0.010,
    idle_host_bound_fraction=0.20,
    idle_sync_fraction=0.05,
)
"""A tenth of exposed communication and a twentieth of copies."""


def shares(**known: Any) -> dict[str, float]:
    """By name."""
    found = dimensions(PHASES, WAITS, **known)
    assert found is not None
    return found.shares


def test_without_audit_and_trace_the_work_is_one_share() -> None:
    """Nothing says how it divides, and a guess would be a number."""
    found = dimensions(PHASES, WAITS)

    assert found is not None
    assert (found.compute, found.memory, found.launch) == (None, None, None)
    assert found.shares == pytest.approx(
        {"transfer": 0.05, "synchronisation": 0.13, "undivided": 0.60, "other": 0.22}
    )
    assert found.basis == "phases"


def test_an_audit_divides_the_work_by_what_binds_its_operators() -> None:
    """Sixty milliseconds, half compute and half memory; their floors are as long."""
    found = shares(light=make_light(COMPUTE, MEMORY))

    assert found == pytest.approx(
        {
            "compute": 0.30,
            "memory": 0.30,
            "launch": 0.0,
            "transfer": 0.05,
            "synchronisation": 0.13,
            "other": 0.22,
        }
    )


def test_on_a_cpu_the_operators_run_times_divide_it() -> None:
    """15 ms computing and 30 ms moving; the other 15 of the 60 ran no operator: launching."""
    uses = [
        msgspec.structs.replace(COMPUTE, host_s=0.015),
        msgspec.structs.replace(MEMORY, host_s=0.030),
    ]
    found = shares(light=make_light(*uses), timed=True)

    # Launching the two takes a microsecond of each one's time.
    assert found["compute"] == pytest.approx(0.15 - 1e-5)
    assert found["memory"] == pytest.approx(0.30 - 1e-5)
    assert found["launch"] == pytest.approx(0.15 + 2e-5)


def test_operators_of_a_slower_audited_step_are_scaled_to_the_step() -> None:
    """They ran for twice the work's time under audit: no launching is left, shares stay one."""
    uses = [msgspec.structs.replace(use, host_s=0.060) for use in (COMPUTE, MEMORY)]
    found = shares(light=make_light(*uses), timed=True)

    assert found["compute"] == pytest.approx(0.30, abs=1e-4)
    assert sum(found.values()) == pytest.approx(1.0)


def test_a_trace_says_what_the_device_did() -> None:
    """Launching is measured there: idle time in which the host had launched nothing."""
    found = dimensions(PHASES, WAITS, trace=TRACE)

    assert found is not None
    assert found.shares == pytest.approx(
        {
            "launch": 0.20,
            "transfer": 0.05,
            "synchronisation": 0.15,
            "undivided": 0.50,
            "other": 0.10,
        }
    )
    assert found.basis == "trace"


def test_an_audit_divides_the_kernels_of_a_trace() -> None:
    """Three quarters of the floors are memory."""
    light = make_light(COMPUTE, msgspec.structs.replace(MEMORY, memory_bytes=3 * 10**7))
    found = dimensions(PHASES, WAITS, light=light, trace=TRACE)

    assert found is not None
    assert (found.compute, found.memory) == (pytest.approx(0.125), pytest.approx(0.375))
    assert (found.launch, found.undivided, found.basis) == (0.20, None, "trace and audit")


def test_what_no_phase_brackets_is_not_zero() -> None:
    """A loop that brackets nothing may compute all the time; an unseen transfer is in `other`."""
    assert dimensions({}, {}) is None
    assert dimensions({"data_wait": 0.1, "other": 0.9}, {}) is None
    unseen = dimensions({"forward": 0.5, "backward": 0.3, "other": 0.2}, {})

    assert unseen is not None
    assert unseen.transfer is None
    assert unseen.other == pytest.approx(0.2)


_SECONDS = st.floats(min_value=0.0, max_value=1e3)


@given(
    phases=st.fixed_dictionaries(dict.fromkeys(PHASES, _SECONDS)),
    tail_s=_SECONDS,
    loop_wait_s=_SECONDS,
    operators=st.lists(st.tuples(*[st.integers(0, 10**12)] * 2, _SECONDS), max_size=4),
    timed=st.booleans(),
    traced=st.lists(_SECONDS, min_size=6, max_size=6).filter(lambda parts: sum(parts) > 1e-6),
    with_trace=st.booleans(),
)
def test_the_shares_always_sum_to_one_and_none_is_negative(
    *,
    phases: dict[str, float],
    tail_s: float,
    loop_wait_s: float,
    operators: list[tuple[int, int, float]],
    timed: bool,
    traced: list[float],
    with_trace: bool,
) -> None:
    """Whatever was measured, and however the medians and means disagree."""
    compute, communication, copies, host, sync, _ = (part / sum(traced) for part in traced)
    totals = TraceTotals(
        steps=1,
        step_s=1.0,
        gpu_busy_fraction=compute + communication + copies,
        gpu_busy_s=compute + communication + copies,
        compute_fraction=compute,
        comm_exposed_s=communication,
        idle_host_bound_fraction=host,
        idle_sync_fraction=sync,
    )
    uses = [make_use(flops=f, memory=b, host_s=s) for f, b, s in operators]
    found = dimensions(
        phases,
        {"backward": tail_s, "loop": loop_wait_s},
        light=make_light(*uses) if uses else None,
        timed=timed,
        trace=totals if with_trace else None,
    )

    if found is None:
        assert sum(phases.values()) == 0.0
        return
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert min(found.shares.values()) >= 0.0
