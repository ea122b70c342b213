"""Fusion of an elementwise chain: bytes that never go to memory, predicted and counted."""

import logging
from pathlib import Path

import msgspec
import torch
from torch import Tensor, nn
from torch.nn import functional

from recipes.cases.case import Case, MeasuredRow
from recipes.cases.measuring import exact, paired
from recipes.cases.reports import before
from recipes.cases.verdicts import verdict
from recipes.claims.bench import Batch, ClaimBench, same, sgd
from recipes.claims.published import FUSED_CHAIN
from trainperf.audit import audit_step


BOUND = "a bound of the gain: arithmetic takes time, too"
ALONE = "of the chain alone; the bound above is of a training step that holds it"

UNARY, BINARY = 6, 2
"""Operators of the chain with one large input and with two; each writes one result."""


def gelu(x: Tensor) -> Tensor:
    """GELU by its formula, as it is written in many models: eight operators."""
    return 0.5 * x * (1.0 + torch.tanh(0.7978845608 * (x + 0.044715 * x**3)))


def fused_chain(bench: ClaimBench) -> Case:
    """The chain as operators, as the library's kernel, and compiled."""
    x = bench.random(bench.pick(1 << 16, 1 << 22))
    versions = {"operators": gelu, "library": lambda y: functional.gelu(y, approximate="tanh")}
    compiled = torch.compile(gelu, dynamic=False) if bench.compiles else None
    if compiled is not None:
        versions["compiled"] = compiled
    first, *others = paired(versions, x, seconds=bench.seconds)
    rows = (first, *(msgspec.structs.replace(row, note=ALONE) for row in others))
    return Case(
        name="fused_chain",
        claim="A chain of elementwise operators is bound by memory: fused into one kernel, which "
        "moves fewer bytes, it is faster.",
        change=("- gelu(x)", "+ torch.compile(gelu)(x)"),
        measured=(*rows, *_traffic(x, compiled=compiled is not None)),
        published=FUSED_CHAIN,
        **before(_fit(bench), "elementwise_chain"),
        **verdict(rows[-1], "faster", why="arithmetic, not memory, is what the chain waits for"),
    )


def _traffic(x: Tensor, *, compiled: bool) -> list[MeasuredRow]:
    """Bytes: predicted from the formula, then counted by the audit and by the compiler."""
    size = x.numel() * x.element_size()
    expected = MeasuredRow(
        what="bytes of the operators, predicted",
        value=(2 * UNARY + 3 * BINARY) * size,
        unit="B",
    )
    fused = exact("bytes of one kernel, predicted", 2 * size, expected)
    rows = [expected, msgspec.structs.replace(fused, note=BOUND)]
    audited = sum(use.moved_bytes for use in audit_step(lambda: gelu(x)).operators)
    counted = MeasuredRow(what="bytes of the operators, audited", value=audited, unit="B")
    rows.append(counted)
    if compiled:
        rows.append(exact("bytes of one kernel, by the compiler", _compiler_bytes(x), counted))
    return rows


def _compiler_bytes(x: Tensor) -> int:
    """What the compiler counts for the kernels it makes; private, as it has no other count."""
    from torch._inductor import compile_fx, config, metrics  # noqa: PLC0415 - takes seconds

    log = compile_fx.inductor_metrics_log
    level, log.propagate = log.level, False
    log.setLevel(logging.INFO)  # it counts only for this log, and not for what is cached
    try:
        torch.compiler.reset()
        metrics.reset()
        with config.patch(force_disable_caches=True):
            torch.compile(gelu, dynamic=False)(x)
    finally:
        log.propagate = True
        log.setLevel(level)
    return int(metrics.num_bytes_accessed)


class _Block(nn.Module):
    """Two layers with the chain between them."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(32, width), nn.Linear(width, 1)

    def forward(self, x: Tensor) -> Tensor:
        """One value per row."""
        value: Tensor = self.down(gelu(self.up(x)))
        return value


def _fit(bench: ClaimBench) -> Path:
    model = same(lambda: _Block(bench.pick(64, 512))).to(bench.device)
    batch: Batch = (bench.random(bench.pick(64, 1024), 32),)
    training = sgd(model, lambda module, rows: module(rows[0]).square().mean())
    return bench.fit("fused_chain", training, [batch])
