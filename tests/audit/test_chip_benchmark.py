"""The probe against real work on this CPU: floors below measured times, and not far below."""

from collections.abc import Callable

import torch
from support.threads import one_thread

from trainperf.analysis.roofline.roofline import roofline
from trainperf.audit import audit_step
from trainperf.audit.chip_benchmark import best_of, probe
from trainperf.core.machine.chips import Chip
from trainperf.core.machine.clocks import thread_ns


CPU = torch.device("cpu")


__all__ = ["one_thread"]


def fastest_s(act: Callable[[], object]) -> float:
    """The shortest of a few runs, of one thread: without the time that others had its core."""
    took = []
    for _ in range(10):
        start = thread_ns()
        act()
        took.append(thread_ns() - start)
    return min(took) / 1e9


def over_floor(act: Callable[[], object], good: Callable[[float], bool]) -> float:
    """Measured over floor; a busy machine gets a few chances to show what it can do."""
    chips: list[Chip] = []
    took: list[float] = []
    audit = audit_step(act)
    ratio = 0.0
    for _ in range(6):
        chips.append(probe(CPU, budget_s=2.0))
        took.append(fastest_s(act))
        ratio = min(took) / roofline(audit, best_of(chips)).step.floor_s
        if good(ratio):
            break
    return ratio


def test_a_large_product_runs_at_half_its_speed_of_light_or_better() -> None:
    """And the light is faster, up to what two measurements differ by."""
    left = torch.ones(1024, 1024)

    ratio = over_floor(lambda: torch.mm(left, left), lambda ratio: 0.8 <= ratio <= 2.0)

    assert 0.8 <= ratio <= 2.0


def test_the_probe_measures_every_precision_and_says_so() -> None:
    """No figure of it is from a table."""
    chip = probe(CPU, budget_s=0.2)

    assert set(chip.flops_per_s) == {"fp64", "fp32", "bf16", "fp16"}
    assert min(chip.flops_per_s.values()) > 0
    assert chip.memory_bytes_per_s > 0
    assert chip.launch_s is not None
    assert chip.link_bytes_per_s is None
    assert "measured" in chip.source
