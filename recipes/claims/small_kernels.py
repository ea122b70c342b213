"""Many small kernels against one: the update of two hundred small tensors."""

from pathlib import Path

import torch
from torch import Tensor, nn

from recipes.cases.case import Case
from recipes.cases.measuring import paired
from recipes.cases.reports import before
from recipes.cases.verdicts import verdict
from recipes.claims.bench import ClaimBench, Training, same
from recipes.claims.published import SMALL_KERNELS


def small_kernels(bench: ClaimBench) -> Case:
    """AdamW tensor by tensor, in lists of tensors, and as one kernel."""
    updates = {
        "tensor by tensor": _Update(bench, foreach=False, fused=False),
        "lists of tensors": _Update(bench, foreach=True, fused=False),
        "one kernel": _Update(bench, foreach=False, fused=True),
    }
    rows = paired(updates, None, seconds=bench.seconds)
    return Case(
        name="small_kernels",
        claim="One kernel for all small tensors is faster than a kernel for each: calls, not "
        "arithmetic, are the cost.",
        change=(
            "- AdamW(model.parameters(), foreach=False)",
            "+ AdamW(model.parameters(), fused=True)",
        ),
        measured=rows,
        published=SMALL_KERNELS,
        **before(_fit(bench), "optimizer_not_fused"),
        **verdict(rows[-1], "faster"),
    )


class _Update:
    """An AdamW that is stepped again and again with the same gradients."""

    def __init__(self, bench: ClaimBench, *, foreach: bool, fused: bool) -> None:
        self.model = _model(bench)
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), lr=1e-4, foreach=foreach, fused=fused
        )
        for parameter in self.model.parameters():
            parameter.grad = torch.ones_like(parameter)

    def __call__(self, _: None) -> Tensor:
        """One update; a weight, to be compared."""
        self.optimizer.step()
        return next(self.model.parameters()).detach()


def _model(bench: ClaimBench) -> nn.Module:
    layers = bench.pick(10, 100)
    model = same(lambda: nn.Sequential(*(nn.Linear(16, 16) for _ in range(layers))))
    return model.to(bench.device)


def _fit(bench: ClaimBench) -> Path:
    model = _model(bench)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, foreach=False)
    training = Training(
        model=model, optimizer=optimizer, loss=lambda module, rows: module(rows[0]).square().mean()
    )
    return bench.fit("small_kernels", training, [(bench.random(32, 16),)])
