"""Activation checkpointing with a larger batch: whether the batch wins back the recomputation."""

from collections.abc import Callable

from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from recipes.cases.case import Case, MeasuredRow
from recipes.cases.measuring import exact, paired
from recipes.cases.reports import table_lines
from recipes.cases.verdicts import verdict
from recipes.claims.bench import Batch, ClaimBench, Training, same, sgd
from recipes.claims.published import CHECKPOINTING
from trainperf.audit.memory_ledger import memory_ledger


TIMES = 4
"""Micro-batches that become one batch."""

WHY_NOT = "what the larger batch gains does not pay for computing forward twice"


def checkpointing(bench: ClaimBench) -> Case:
    """Four micro-batches that keep their activations, and one batch of four that does not."""
    batch = (bench.random(TIMES * bench.pick(8, 64), 256),)
    keeping, recomputing = _training(bench), _training(bench, recompute=True)
    also = _training(bench, recompute=True)

    def micro_batches(whole: Batch) -> Tensor:
        return keeping.accumulated(whole, TIMES)

    def checkpointed(whole: Batch) -> Tensor:
        return also.accumulated(whole, TIMES)

    versions = {
        "4 micro-batches": micro_batches,
        "1 checkpointed batch": recomputing.step,
        "4 checkpointed micro-batches": checkpointed,
    }
    rows = paired(versions, batch, seconds=2 * bench.seconds)
    run = bench.fit("checkpointing", _training(bench), [(batch[0][: len(batch[0]) // TIMES],)])
    return Case(
        name="checkpointing",
        claim="One larger checkpointed batch takes less time than four micro-batches that keep "
        "their activations, although it computes forward twice.",
        before_note="no finding is about this here: memory is not short; the full report says:",
        before=table_lines(run, "What would need less memory"),
        change=(
            "- for part in batch.chunk(4): (loss(model, part) / 4).backward()",
            "+ x = checkpoint(block, x, use_reentrant=False)  # in the model's forward",
            "+ loss(model, batch).backward()",
        ),
        measured=(*rows, *_memory(bench, batch)),
        published=CHECKPOINTING,
        **verdict(rows[1], "faster", why=WHY_NOT if bench.device == "cpu" else ""),
    )


def _memory(bench: ClaimBench, batch: Batch) -> tuple[MeasuredRow, ...]:
    """What forward keeps for backward, by trainperf's audit."""
    kept, plain, recomputed = _training(bench), _training(bench), _training(bench, recompute=True)
    first = MeasuredRow(
        what="kept by forward, 4 micro-batches",
        value=_activations(kept.model, lambda: kept.accumulated(batch, TIMES)),
        unit="B",
    )
    others = {"1 batch that keeps all": plain, "1 checkpointed batch": recomputed}
    return (
        first,
        *(
            exact(f"kept by forward, {name}", _activations(each.model, _bound(each, batch)), first)
            for name, each in others.items()
        ),
    )


def _bound(training: Training, batch: Batch) -> Callable[[], Tensor]:
    return lambda: training.step(batch)


def _activations(model: nn.Module, step: Callable[[], Tensor]) -> int:
    return memory_ledger(model, step=step).activations_bytes or 0


class _Blocks(nn.Module):
    """Residual perceptrons, each of which may be checkpointed."""

    def __init__(self, width: int, blocks: int, *, recompute: bool) -> None:
        super().__init__()
        self.recompute = recompute
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Linear(256, width), nn.GELU(), nn.Linear(width, 256))
            for _ in range(blocks)
        )

    def forward(self, x: Tensor) -> Tensor:
        """Features of the last block."""
        for block in self.blocks:
            x = x + (checkpoint(block, x, use_reentrant=False) if self.recompute else block(x))
        return x


def _training(bench: ClaimBench, *, recompute: bool = False) -> Training:
    width, blocks = bench.pick((32, 2), (1024, 6))
    model = same(lambda: _Blocks(width, blocks, recompute=recompute)).to(bench.device)
    return sgd(model, lambda module, batch: module(batch[0]).square().mean())
