"""Upper bounds on the memory that changes would save, from the ledger of an audited step.

Estimates: nothing here was measured with the change made.
"""

import re
from collections import defaultdict
from dataclasses import dataclass

from trainperf.core.artifacts.memory import MemoryLedger


_BLOCK = re.compile(r"^(.*?)\.(\d+)(?:\.|$)")
"""A path through one of several modules that are numbered, e.g. in an `nn.ModuleList`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """One change."""

    what: str
    """In words."""
    how: str
    """The code."""
    size_bytes: int
    """What it saves at most, on each rank."""
    costs: str
    """What it costs."""


def savings(ledger: MemoryLedger) -> tuple[Saving, ...]:
    """The changes that save memory, the largest first."""
    changes = (_checkpointing(ledger), _accumulation(ledger), _sharding(ledger))
    helpful = [saving for saving in changes if saving is not None and saving.size_bytes > 0]
    return tuple(sorted(helpful, key=lambda saving: -saving.size_bytes))


def _checkpointing(ledger: MemoryLedger) -> Saving | None:
    """Only one of the repeated blocks at a time keeps its activations; their inputs stay."""
    blocks: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for activation in ledger.activations:
        block = _BLOCK.match(activation.module or "")
        if block:
            blocks[block[1]][block[2]] += activation.size_bytes
    saved = {path: sum(each.values()) - max(each.values()) for path, each in blocks.items()}
    if not saved:
        return None
    path = max(saved, key=lambda name: saved[name])
    return Saving(
        what=f"activation checkpointing of {path}",
        how="torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)",
        size_bytes=saved[path],
        costs="each block's forward runs twice",
    )


def _accumulation(ledger: MemoryLedger) -> Saving | None:
    if not ledger.activations_bytes:
        return None
    return Saving(
        what="half the micro-batch, twice as many of them",
        how=f"batch_size // 2, gradients accumulated over {2 * ledger.micro_batches} micro-batches",
        size_bytes=ledger.activations_bytes // 2,
        costs="smaller products, and twice the launches",
    )


def _sharding(ledger: MemoryLedger) -> Saving:
    ranks = ledger.world_size
    return Saving(
        what=f"an optimizer sharded over {ranks} ranks (ZeRO-1)",
        how="torch.distributed.optim.ZeroRedundancyOptimizer",
        size_bytes=ledger.optimizer_bytes * (ranks - 1) // ranks,
        costs="the updated parameters are broadcast each step",
    )
