"""Which probes a run gets, and why it does not get the others."""

import pytest
import torch

from trainperf.core.steps.records import FACTS
from trainperf.meters import Measure
from trainperf.recording.probes.contention import countable
from trainperf.recording.probes.selection import (
    EVERYTHING,
    FACTS_OF,
    NOT_REQUESTED,
    FitObjects,
    choose,
)


CPU, CUDA = torch.device("cpu"), torch.device("cuda")

WAITING = ["processor wait"] if countable() else []
"""What a CPU run on Linux has in addition."""

COUNTED = ["contention"] if countable() else []
"""What every run on Linux has."""


def names(device: torch.device, *asked: Measure) -> list[str]:
    """Names of the probes for what was asked."""
    chosen = choose(FitObjects(device=device), frozenset(asked or EVERYTHING))
    return sorted(probe.name for probe in chosen.probes)


@pytest.mark.parametrize(
    ("measure", "on_cpu", "on_cuda"),
    [
        (
            Measure.STEP_TIME,
            ["compile", *COUNTED, "gc", *WAITING],
            ["compile", *COUNTED, "gc"],
        ),
        (Measure.DATA_WAIT, [], ["device marks"]),
        (Measure.H2D, [], ["device marks", "transfer"]),
        (Measure.SCALER, [], []),
        (Measure.TOKENS, ["samples", "tokens"], ["samples", "tokens"]),
        (Measure.TAIL, [], ["device marks"]),
        (Measure.MEMORY, ["memory"], ["memory", "memory in use"]),
        (Measure.LOSS, ["loss"], ["loss"]),
    ],
    ids=lambda value: value.name if isinstance(value, Measure) else None,
)
def test_a_measurement_alone_brings_its_own_probes(
    measure: Measure, on_cpu: list[str], on_cuda: list[str]
) -> None:
    """Each costs the loop something: no other one is attached."""
    assert names(CPU, measure) == on_cpu
    assert names(CUDA, measure) == on_cuda


@pytest.mark.parametrize("device", [CPU, CUDA], ids=str)
@pytest.mark.parametrize("measure", [*Measure, None], ids=lambda m: m.name if m else "all")
def test_every_fact_has_a_probe_or_a_reason(device: torch.device, measure: Measure | None) -> None:
    """`None` in a report is explained."""
    asked = frozenset([measure]) if measure else EVERYTHING
    chosen = choose(FitObjects(device=device), asked)
    fed = {fact for probe in chosen.probes for fact in probe.facts}
    promised = {fact for measure in Measure for fact in FACTS_OF[measure]} - {"data_stall_ns"}

    assert promised <= fed | chosen.reasons.keys()
    assert fed <= FACTS.keys()
    assert all(reason for reason in chosen.reasons.values())


def test_what_was_not_asked_for_says_so() -> None:
    """And not that it cannot be measured."""
    chosen = choose(FitObjects(device=CPU), frozenset([Measure.LOSS]))

    assert chosen.reasons["tokens_effective"] == NOT_REQUESTED
    assert chosen.reasons["effective_tokens_per_s"] == NOT_REQUESTED
    assert "loss" not in chosen.reasons


def test_on_a_cpu_device_times_do_not_apply() -> None:
    """The data stall is the data wait there: it needs no reason."""
    chosen = choose(FitObjects(device=CPU), EVERYTHING)

    assert chosen.clock is None
    assert chosen.marks is None
    for fact in ("h2d_device_ns", "h2d_bytes", "lead_forward", "peak_bytes"):
        assert chosen.reasons[fact].startswith("not applicable (CPU)"), fact


def test_on_a_device_its_memory_stands_for_the_hosts() -> None:
    """One of the two is measured."""
    chosen = choose(FitObjects(device=CUDA), EVERYTHING)

    assert chosen.clock is not None
    assert "resident_bytes" in chosen.reasons
    assert "peak_bytes" not in chosen.reasons
