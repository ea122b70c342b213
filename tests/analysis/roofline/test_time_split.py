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


def test_operators_divide_the_work_by_what_they_spend_it_on() -> None:
    """Sixty milliseconds, half compute and half memory."""
    split = shares(spent_s={"compute": 0.03, "memory": 0.03, "launch": 0.0})

    assert split == pytest.approx(
        {
            "compute": 0.30,
            "memory": 0.30,
            "launch": 0.0,
            "transfer": 0.05,
            "synchronisation": 0.13,
            "other": 0.22,
        }
    )


@pytest.mark.parametrize("ahead", [False, True])
def test_where_no_operator_runs_the_host_launches(
    ahead: bool,  # noqa: FBT001 pytest passes it by name
) -> None:
    """15 ms computing, 30 moving and 5 launching leave 10 of 60: a device does not launch."""
    spent_s = {"compute": 0.015, "memory": 0.030, "launch": 0.005}

    split = shares(spent_s=spent_s, ahead=ahead)

    work = split["compute"] + split["memory"] + split["launch"]
    assert split["memory"] == pytest.approx(2 * split["compute"])
    assert split["launch"] / work == pytest.approx(0.005 / 0.050 if ahead else 0.015 / 0.060)


def test_operators_of_more_than_the_work_are_scaled_to_it() -> None:
    """No launching is left, and shares stay one."""
    split = shares(spent_s={"compute": 0.060, "memory": 0.060, "launch": 0.0})

    assert split["compute"] == pytest.approx(0.30)
    assert sum(split.values()) == pytest.approx(1.0)


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
    """Three quarters of their time are memory; launching is measured."""
    spent_s = {"compute": 0.01, "memory": 0.03, "launch": 0.02}
    found = dimensions(PHASES, WAITS, spent_s=spent_s, trace=TRACE)

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
    spent=st.none() | st.fixed_dictionaries(dict.fromkeys(MODELLED, _SECONDS)),
    ahead=st.booleans(),
    traced=st.lists(_SECONDS, min_size=6, max_size=6).filter(lambda parts: sum(parts) > 1e-6),
    with_trace=st.booleans(),
)
def test_the_shares_always_sum_to_one_and_none_is_negative(
    *,
    phases: dict[str, float],
    tail_s: float,
    loop_wait_s: float,
    spent: dict[str, float] | None,
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
        spent_s=spent,
        ahead=ahead,
        trace=totals if with_trace else None,
    )

    if found is None:
        assert sum(phases.values()) == 0.0
        return
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert min(found.shares.values()) >= 0.0
