"""Times of a step's fused attention on a CPU, in fp32 and in bf16.

Its kernels are no matrix products: in bf16 they take from as long as in fp32 to seven times as
long, by the size.  So each size is timed, after the fit, in some tens of milliseconds.
"""

from collections.abc import Callable
from functools import partial

import torch
from torch.nn.functional import scaled_dot_product_attention

from trainperf.audit.chip_benchmark import PRECISIONS
from trainperf.core.artifacts.audit import AttentionTime, StepAudit
from trainperf.core.machine.chips import Chip
from trainperf.core.machine.clocks import monotonic_ns


Shapes = tuple[tuple[int, ...], ...]

MOST = 3
"""Sizes: a network has few, and the heaviest decide."""

TURNS = 8
"""Calls in each precision, in turns: what else runs slows both alike, and rarely all of them."""

LONGEST_NS = 100_000_000
"""For the turns of a size."""

LONGEST_S = 0.01
"""A forward that takes longer is not repeated for this."""


def time_attention(audit: StepAudit, chip: Chip) -> tuple[AttentionTime, ...]:
    """The heaviest fused attention in fp32, where bf16 has twice the peak; else none.

    Takes some tens of milliseconds for most networks, and half a second at most.
    """
    peaks = chip.flops_per_s
    if audit.device != "cpu" or peaks.get("bf16", 0.0) < 2 * peaks.get("fp32", 0.0):
        return ()
    spent: dict[Shapes, float] = {}
    for use in audit.of(["forward"]):
        short = (use.busy_s or use.host_s) / use.calls <= LONGEST_S
        shapes = use.shapes[:3]
        # With fewer heads for keys and values it is called in another way.
        usual = len(shapes) == 3 and len({shape[:-2] for shape in shapes}) == 1
        if use.is_fused_attention and use.precision == "fp32" and short and usual:
            spent[shapes] = spent.get(shapes, 0.0) + use.busy_s
    heaviest = sorted(spent, key=lambda shapes: -spent[shapes])[:MOST]
    # Whatever mode the caller of the fit is in.
    with torch.inference_mode(mode=False), torch.enable_grad():
        return tuple(
            AttentionTime(shapes=shapes, seconds=_fastest_s(shapes, ("fp32", "bf16")))
            for shapes in heaviest
        )


def _fastest_s(shapes: Shapes, precisions: tuple[str, ...]) -> dict[str, float]:
    """Seconds of forward and backward in each precision, the shortest of several calls."""
    acts = {precision: _act(shapes, precision) for precision in precisions}
    times: dict[str, list[int]] = {precision: [] for precision in precisions}
    for act in acts.values():
        act()
    started = monotonic_ns()
    for _ in range(TURNS):
        if monotonic_ns() - started > LONGEST_NS:
            break
        for precision, act in acts.items():
            begin = monotonic_ns()
            act()
            times[precision].append(monotonic_ns() - begin)
    return {precision: min(each) / 1e9 for precision, each in times.items()}


def _act(shapes: Shapes, precision: str) -> Callable[[], object]:
    """Forward and backward in a precision."""
    ones = partial(torch.ones, dtype=PRECISIONS[precision], device="cpu")
    queries, keys, values = (ones(shape, requires_grad=True) for shape in shapes)
    gradient = ones(*shapes[0][:-1], shapes[2][-1])

    def act() -> object:
        mixed = scaled_dot_product_attention(queries, keys, values)
        return torch.autograd.grad(mixed, (queries, keys, values), gradient)

    return act
