"""Assertion that two versions of a step compute the same loss."""

import math
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from types import FunctionType, MethodType
from typing import TypeVar

import torch
from torch import nn

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
    a = _run(step_a, batch, seed, "step_a")
    b = _run(step_b, batch, seed, "step_b")
    if _close(a.loss, b.loss, rtol, atol):
        return
    saw = (
        f"step_a gives loss {a.loss:.8g}, step_b {b.loss:.8g}: they differ by "
        f"{abs(a.loss - b.loss):.3g}, more than atol={atol:g} + rtol={rtol:g} · |a|."
    )
    if not (math.isfinite(a.loss) and math.isfinite(b.loss)):
        raise SmokeFailure(
            f"step_a gives loss {a.loss:g}, step_b {b.loss:g}: losses must be finite to compare.",
            "find the operator with torch.autograd.set_detect_anomaly(True), or its dtype: fp16 "
            "overflows above 65504, bf16 does not.",
        )
    cause, do = _cause(a, b, dropout_of(step_a), dropout_of(step_b))
    again = _run(step_a, batch, seed, "step_a")
    if not _close(a.loss, again.loss, rtol, atol):
        cause += f" A second call of step_a with the same seed gives {again.loss:.8g}."
        do = (
            "compare steps that leave the weights as they are (no optimizer step), or give each "
            "a copy of the model (copy.deepcopy) before the first call; if step_a does not "
            "train, it is not deterministic: torch.use_deterministic_algorithms(True)."
        )
    raise SmokeFailure(saw + cause, do)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Run:
    """The loss of one call, and torch's random state (CPU and devices) around it."""

    loss: float
    before: tuple[bytes, ...]
    after: tuple[bytes, ...]

    @property
    def drew(self) -> bool:
        """Whether it used random numbers of torch."""
        return self.before != self.after


def _run(step: Callable[[Batch], object], batch: Batch, seed: int, name: str) -> _Run:
    with seeded(seed):
        before = _states()
        result = result_of(step(batch))
        after = _states()
    if result is None or result.ndim:
        raise ConfigError(
            f"{name}: returned no single loss; return it (a scalar, or a mapping with 'loss')"
        )
    return _Run(loss=float(result), before=before, after=after)


def _states() -> tuple[bytes, ...]:
    states = (torch.get_rng_state(), *random_states().values())
    return tuple(bytes(state.cpu().numpy()) for state in states)


def _close(a: float, b: float, rtol: float, atol: float) -> bool:
    return math.isfinite(a) and math.isfinite(b) and abs(a - b) <= atol + rtol * abs(a)


def _cause(a: _Run, b: _Run, dropout_a: str, dropout_b: str) -> tuple[str, str]:
    """What the random draws reveal, and the remedy."""
    dropout_off = "compare with dropout off (model.eval(), or p=0 in both)"
    if dropout_a != dropout_b:
        return (
            f" Their dropout differs: step_a has {dropout_a}, step_b {dropout_b}.",
            f"{dropout_off}; with dropout on, both models need the same mode and the same p.",
        )
    if a.after != b.after:
        return (
            " They drew different random numbers from the same seed.",
            f"{dropout_off}: another order, number or kernel of random draws gives other masks.",
        )
    if a.drew:
        return (
            " Both drew the same number of random numbers.",
            f"{dropout_off} to see whether the masks or the mathematics differ.",
        )
    return " No random numbers were drawn, so dropout is not the reason.", (
        "check that both have the same weights and the same mode (train or eval); a lower "
        "precision (bf16: rtol=2e-2, fp16: rtol=2e-3) needs a wider tolerance."
    )


_DROPOUT = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)


def modules_of(step: object) -> tuple[nn.Module, ...]:
    """Modules that *step* is, is bound to, closes over, is given as defaults or reads by name."""
    modules = {id(each): each for each in _reached(step) if isinstance(each, nn.Module)}
    return tuple(modules.values())


def dropout_of(step: Callable[..., object]) -> str:
    """The dropout that is on in the step's modules, e.g. `p=0.1 (2 ×)`; `no dropout module`."""
    parts = {id(part): part for module in modules_of(step) for part in module.modules()}
    counts = Counter(
        part.p
        for part in parts.values()
        if isinstance(part, _DROPOUT) and part.training and part.p > 0
    )
    if not counts:
        return "no dropout module that is on"
    return ", ".join(f"dropout p={p:g} ({n} ×)" for p, n in sorted(counts.items()))


def _reached(step: object) -> Iterator[object]:
    yield step
    if isinstance(step, partial):
        for each in (step.func, *step.args, *step.keywords.values()):
            yield from _reached(each)
    elif isinstance(step, MethodType):
        yield step.__self__
        yield from _held(step.__self__)
        yield from _reached(step.__func__)
    elif isinstance(step, FunctionType):
        yield from (
            cell.cell_contents for cell in step.__closure__ or () if hasattr(cell, "cell_contents")
        )
        yield from step.__defaults__ or ()
        names = (name for name in step.__code__.co_names if name in step.__globals__)
        yield from (step.__globals__[name] for name in names)
    elif not isinstance(step, nn.Module | type):
        yield from _held(step)


def _held(owner: object) -> Iterator[object]:
    """The attributes of an object that is no module: a trainer class, a callable."""
    if not isinstance(owner, nn.Module):
        yield from getattr(owner, "__dict__", {}).values()
