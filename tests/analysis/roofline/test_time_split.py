"""The shares of a step by what it is spent on, from planted phases, audits and traces."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainperf.analysis.roofline.time_split import MODELLED, dimensions
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


OUTSIDE = {"transfer": 0.05, "synchronisation": 0.13, "other": 0.22}
"""What is no work of operators."""
IN_TRACE = {"launch": 0.20, "transfer": 0.05, "synchronisation": 0.15, "other": 0.10}


def spent(compute: float, memory: float, launch: float = 0.0) -> dict[str, float]:
    """Milliseconds of operators."""
    return {"compute": compute / 1e3, "memory": memory / 1e3, "launch": launch / 1e3}


@pytest.mark.parametrize(
    ("known", "expected", "basis"),
    [
        # Nothing says how the work divides, and a guess would be a number.
        ({}, {**OUTSIDE, "undivided": 0.60}, "phases"),
        # Sixty milliseconds, half compute and half memory.
        (
            {"spent_s": spent(30, 30)},
            {**OUTSIDE, "compute": 0.30, "memory": 0.30, "launch": 0.0},
            "audit",
        ),
        # Operators of more than the work are scaled to it.
        (
            {"spent_s": spent(60, 60)},
            {**OUTSIDE, "compute": 0.30, "memory": 0.30, "launch": 0.0},
            "audit",
        ),
        # Launching is measured there: idle time in which the host had launched nothing.
        ({"trace": TRACE}, {**IN_TRACE, "undivided": 0.50}, "trace"),
        # Three quarters of the kernels' time are memory.
        (
            {"trace": TRACE, "spent_s": spent(10, 30, 20)},
            {**IN_TRACE, "compute": 0.125, "memory": 0.375},
            "trace and audit",
        ),
    ],
)
def test_a_step_is_divided_by_what_is_known_of_it(
    known: dict[str, Any], expected: dict[str, float], basis: str
) -> None:
    """Shares that nobody measured are not there."""
    found = dimensions(PHASES, WAITS, **known)

    assert found.shares == pytest.approx(expected)
    assert found.basis == basis


@pytest.mark.parametrize("ahead", [False, True])
def test_where_no_operator_runs_the_host_launches(
    ahead: bool,  # noqa: FBT001 pytest passes it by name
) -> None:
    """15 ms computing, 30 moving and 5 launching leave 10 of 60: a device does not launch."""
    found = dimensions(PHASES, WAITS, spent_s=spent(15, 30, 5), ahead=ahead)
    split = found.shares

    work = split["compute"] + split["memory"] + split["launch"]
    assert split["memory"] == pytest.approx(2 * split["compute"])
    assert split["launch"] / work == pytest.approx(0.005 / 0.050 if ahead else 0.015 / 0.060)


def test_what_no_phase_brackets_is_not_zero() -> None:
    """A loop that brackets nothing may compute all the time; an unseen transfer is in `other`."""
    assert dimensions({}, {}) is None
    assert dimensions({"data_wait": 0.1, "other": 0.9}, {}) is None
    unseen = dimensions({"forward": 0.5, "backward": 0.3, "other": 0.2}, {})

    assert "transfer" not in unseen.shares
    assert unseen.shares["other"] == pytest.approx(0.2)


_SECONDS = st.floats(min_value=0.0, max_value=1e3)


@given(
    phases=st.fixed_dictionaries(dict.fromkeys(PHASES, _SECONDS)),
    tail_s=_SECONDS,
    loop_wait_s=_SECONDS,
    audited=st.none() | st.fixed_dictionaries(dict.fromkeys(MODELLED, _SECONDS)),
    ahead=st.booleans(),
    traced=st.lists(_SECONDS, min_size=6, max_size=6).filter(lambda parts: sum(parts) > 1e-6),
    with_trace=st.booleans(),
)
def test_the_shares_always_sum_to_one_and_none_is_negative(
    *,
    phases: dict[str, float],
    tail_s: float,
    loop_wait_s: float,
    audited: dict[str, float] | None,
    ahead: bool,
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
    found = dimensions(
        phases,
        {"backward": tail_s, "loop": loop_wait_s},
        spent_s=audited,
        ahead=ahead,
        trace=totals if with_trace else None,
    )

    if found is None:
        assert sum(phases.values()) == 0.0
        return
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert min(found.shares.values()) >= 0.0
