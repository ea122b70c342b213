"""What would make a step need less memory, and by how much at most?

Reckoned from the ledger of an audited step; nothing here was measured with the change made.
"""

import re
from collections import defaultdict
from dataclasses import dataclass

from trainperf.core.artifacts.memory import MemoryLedger


TEXTBOOK_BYTES = 16
"""Per parameter under mixed precision with Adam: 2 + 2 for a half-precision parameter and its
gradient, 4 for the master copy, 4 + 4 for the two moments (ZeRO, arXiv 1910.02054, section 3.1)."""

SHARDED_OVER = 8
"""Ranks that a sharded optimizer is reckoned for where there is one rank only."""

_BLOCK = re.compile(r"^(.*?)\.(\d+)(?:\.|$)")
"""A path through one of several modules that are numbered, e.g. in an `nn.ModuleList`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Saving:
    """One change."""

    what: str
    """As a person would call it."""
    how: str
    """The code."""
    size_bytes: int
    """What it saves at most, on each rank."""
    costs: str
    """What it is paid with."""


def bytes_per_parameter(ledger: MemoryLedger) -> float | None:
    """Parameters, gradients, master weights and optimizer state; `None` without parameters.

    To be read beside `TEXTBOOK_BYTES`.
    """
    if not ledger.parameters:
        return None
    return (ledger.static_bytes - ledger.buffers_bytes) / ledger.parameters


def savings(ledger: MemoryLedger) -> tuple[Saving, ...]:
    """All that save something, the largest first."""
    found = (_checkpointing(ledger), _accumulation(ledger), _sharding(ledger))
    known = [one for one in found if one is not None and one.size_bytes > 0]
    return tuple(sorted(known, key=lambda one: -one.size_bytes))


def _checkpointing(ledger: MemoryLedger) -> Saving | None:
    """Of repeated blocks only one at a time keeps its activations; their inputs stay."""
    blocks: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    for one in ledger.activations:
        found = _BLOCK.match(one.module or "")
        if found:
            blocks[found[1]][found[2]] += one.size_bytes
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


def _sharding(ledger: MemoryLedger) -> Saving | None:
    ranks = ledger.world_size if ledger.world_size > 1 else SHARDED_OVER
    return Saving(
        what=f"an optimizer sharded over {ranks} ranks (ZeRO-1)",
        how="torch.distributed.optim.ZeroRedundancyOptimizer",
        size_bytes=ledger.optimizer_bytes * (ranks - 1) // ranks,
        costs="the updated parameters are broadcast each step",
    )
