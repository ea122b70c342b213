"""Assertion that two versions of a step compute the same loss."""

import math
from collections.abc import Callable
from typing import TypeVar

import torch

from trainperf.accelerators import random_states
from trainperf.benchmark.calls import result_of, seeded
from trainperf.core.errors import ConfigError, SmokeFailure


Batch = TypeVar("Batch")


def assert_close_loss(
    step_a: Callable[[Batch], object],
    step_b: Callable[[Batch], object],
    batch: Batch,
    *,
    rtol: float = 1e-3,
    atol: float = 1e-6,
    seed: int = 0,
) -> None:
    """Fail unless both steps return the same loss on *batch*: |a − b| ≤ atol + rtol · |a|.

    Both draw from the same *seed*, so that equal dropout drops the same; the random state of
    Python, NumPy and torch is put back afterwards.  Steps that train need weights of their own:
    the second one would start from what the first one left.
    """
    __tracebackhide__ = True
    a, drawn_a = _run(step_a, batch, seed, "step_a")
    b, drawn_b = _run(step_b, batch, seed, "step_b")
    if not (math.isfinite(a) and math.isfinite(b)):
        raise SmokeFailure(
            f"step_a gives loss {a:g}, step_b {b:g}: losses must be finite to compare.",
            "find the operator with torch.autograd.set_detect_anomaly(True), or its dtype: fp16 "
            "overflows above 65504, bf16 does not.",
        )
    most = atol + rtol * abs(a)
    if abs(a - b) <= most:
        return
    saw = (
        f"step_a gives loss {a:.8g}, step_b {b:.8g}: they differ by "
        f"{abs(a - b):.3g}, more than atol={atol:g} + rtol={rtol:g} · |a|."
    )
    cause, do = _cause(alike=drawn_a == drawn_b)
    again, _ = _run(step_a, batch, seed, "step_a")
    if not abs(a - again) <= most:
        cause += f" A second call of step_a with the same seed gives {again:.8g}."
        do = (
            "compare steps that leave the weights as they are (no optimizer step), or give each "
            "a copy of the model (copy.deepcopy) before the first call; if step_a does not "
            "train, it is not deterministic: torch.use_deterministic_algorithms(True)."
        )
    raise SmokeFailure(saw + cause, do)


def _run(
    step: Callable[[Batch], object], batch: Batch, seed: int, name: str
) -> tuple[float, bytes]:
    """The loss of one call, and torch's random state (CPU and devices) after it."""
    with seeded(seed):
        result = result_of(step(batch))
        states = (torch.get_rng_state(), *random_states().values())
        drawn = b"".join(bytes(state.cpu().numpy()) for state in states)
    if result is None or result.ndim:
        raise ConfigError(
            f"{name}: returned no single loss; return it (a scalar, or a mapping with 'loss')"
        )
    return float(result), drawn


def _cause(*, alike: bool) -> tuple[str, str]:
    """What the random draws reveal, and the remedy."""
    dropout_off = "compare with dropout off (model.eval(), or p=0 in both)"
    if not alike:
        return " They drew different random numbers from the same seed.", (
            f"{dropout_off}: another mode, or another order, number or kernel of random draws "
            "gives other masks."
        )
    return " They drew the same random numbers, or none.", (
        f"check that both have the same weights, the same mode (train or eval) and the same p of "
        f"dropout, and {dropout_off}; a lower precision (bf16: rtol=2e-2, fp16: rtol=2e-3) needs a "
        "wider tolerance."
    )
