"""Upper bounds on the memory that changes would save, from the ledger of an audited step.

Estimates: nothing here was measured with the change made.
"""

import re

from trainperf.core.artifacts.memory import MemoryLedger
from trainperf.core.groups import grouped, summed


_BLOCK = re.compile(r"^(.*?)\.(\d+)(?:\.|$)")
"""A path through one of several modules that are numbered, e.g. in an `nn.ModuleList`."""


def savings(ledger: MemoryLedger) -> dict[str, int]:
    """Change to the bytes that it saves at most on each rank, the largest first."""
    ranks = ledger.world_size
    saved = {
        **_checkpointing(ledger),
        "half the micro-batch, twice as many of them": (ledger.activations_bytes or 0) // 2,
        f"an optimizer sharded over {ranks} ranks (ZeRO-1)": (
            ledger.optimizer_bytes * (ranks - 1) // ranks
        ),
    }
    return {
        what: saved[what] for what in sorted(saved, key=lambda what: -saved[what]) if saved[what]
    }


def _checkpointing(ledger: MemoryLedger) -> dict[str, int]:
    """Only one of the repeated blocks at a time keeps its activations; their inputs stay."""
    matches = ((_BLOCK.match(each.module or ""), each.size_bytes) for each in ledger.activations)
    blocks = grouped((block[1], (block[2], held)) for block, held in matches if block)
    sizes = {path: summed(each).values() for path, each in blocks.items()}
    saved = {path: sum(each) - max(each) for path, each in sizes.items()}
    return {
        f"activation checkpointing of {path}": saved[path]
        for path in sorted(saved, key=lambda path: -saved[path])[:1]
    }
