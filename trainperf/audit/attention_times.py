"""Times of a step's fused attention on a CPU, in fp32 and in bf16.

Its kernels are no matrix products: in bf16 they take from as long as in fp32 to seven times as
long, by the size.  So each size is timed, after the fit, in some tens of milliseconds.
"""

from collections import defaultdict
from functools import partial
from heapq import nlargest

import torch
from torch.nn.functional import scaled_dot_product_attention

from trainperf.audit.chip_benchmark import PRECISIONS, fastest_s
from trainperf.core.artifacts.audit import AttentionTime, StepAudit
from trainperf.core.machine.chips import Chip


Shapes = tuple[tuple[int, ...], ...]

MOST = 3
"""Sizes: a network has few, and the heaviest decide."""

BUDGET_S = 0.05
"""For a size in a precision."""

LONGEST_S = 0.01
"""A forward that takes longer is not repeated for this."""


def time_attention(audit: StepAudit, chip: Chip) -> tuple[AttentionTime, ...]:
    """The heaviest fused attention in fp32, where bf16 has twice the peak; else none.

    Takes some tens of milliseconds for most networks, and half a second at most.
    """
    peaks = chip.flops_per_s
    if audit.device != "cpu" or peaks.get("bf16", 0.0) < 2 * peaks.get("fp32", 0.0):
        return ()
    spent_s: dict[Shapes, float] = defaultdict(float)
    for use in audit.of(["forward"]):
        short = (use.busy_s or use.host_s) / use.calls <= LONGEST_S
        shapes = use.shapes[:3]
        # With fewer heads for keys and values it is called in another way.
        usual = len(shapes) == 3 and len({shape[:-2] for shape in shapes}) == 1
        if use.is_fused_attention and use.precision == "fp32" and short and usual:
            spent_s[shapes] += use.busy_s
    # Whatever mode the caller of the fit is in.
    with torch.inference_mode(mode=False), torch.enable_grad():
        return tuple(
            AttentionTime(
                shapes=shapes, seconds={name: _pass_s(shapes, name) for name in ("fp32", "bf16")}
            )
            for shapes in nlargest(MOST, spent_s, key=spent_s.__getitem__)
        )


def _pass_s(shapes: Shapes, precision: str) -> float:
    """Seconds of forward and backward in a precision, the shortest of several."""
    ones = partial(torch.ones, dtype=PRECISIONS[precision], device="cpu")
    query, key, value = (ones(shape, requires_grad=True) for shape in shapes)
    gradient = ones(*shapes[0][:-1], shapes[2][-1])

    def act() -> object:
        mixed = scaled_dot_product_attention(query, key, value)
        return torch.autograd.grad(mixed, (query, key, value), gradient)

    return fastest_s(act, gradient.device, BUDGET_S)
