"""What would need less memory: reckoned by hand beside what is reckoned."""

import msgspec
import pytest

from trainperf.analysis.roofline.memory_savings import savings
from trainperf.core.artifacts.memory import MemoryLedger, ModuleActivations


MIB = 2**20


def ledger(**changes: object) -> MemoryLedger:
    """A million parameters in fp32 under Adam, as Lightning's `16-mixed` keeps them."""
    plain = MemoryLedger(
        device="cuda",
        parameters=10**6,
        parameters_bytes=4 * 10**6,
        gradients_bytes=4 * 10**6,
        optimizer_state_bytes={"exp_avg": 4 * 10**6, "exp_avg_sq": 4 * 10**6},
    )
    return msgspec.structs.replace(plain, **changes)


def activations(**sizes: int) -> tuple[ModuleActivations, ...]:
    """Mebibytes by module, dots written as underscores."""
    return tuple(
        ModuleActivations(module=name.replace("_", "."), size_bytes=size * MIB)
        for name, size in sizes.items()
    )


BLOCKS = "activation checkpointing of"
HALF = "half the micro-batch, twice as many of them"
SHARDED = "an optimizer sharded over {} ranks (ZeRO-1)"
MASTERED = dict.fromkeys(("exp_avg", "exp_avg_sq", "master weights"), 4 * 10**6)


@pytest.mark.parametrize(
    ("changes", "saved"),
    [
        # The largest block; what is outside of the blocks stays.
        (
            {
                "activations": activations(
                    Net_blocks_0_a=30, Net_blocks_0_b=10, Net_blocks_1=50, Net_head=99
                )
            },
            {f"{BLOCKS} Net.blocks": (40 + 50 - 50) * MIB},
        ),
        # Two of two layers each: one of the two is left.
        (
            {"activations": activations(N_b_0_l_0=10, N_b_0_l_1=10, N_b_1_l_0=10, N_b_1_l_1=10)},
            {f"{BLOCKS} N.b": 20 * MIB},
        ),
        # Its activations are needed all at once.
        ({"activations": activations(Net_blocks_0=30)}, {}),
        ({"activations_bytes": 64 * MIB, "micro_batches": 3}, {HALF: 32 * MIB}),
        # Master weights are shared out too; of one rank nothing is, nor without a state.
        ({"world_size": 4, "optimizer_state_bytes": MASTERED}, {SHARDED.format(4): 9 * 10**6}),
        ({}, {}),
        ({"world_size": 4, "optimizer_state_bytes": {}}, {}),
        (
            {"activations_bytes": 64 * MIB, "world_size": 8},
            {HALF: 32 * MIB, SHARDED.format(8): 7 * 10**6},
        ),
    ],
    ids=[
        "checkpointing leaves the activations of one block",
        "blocks within blocks count for the outer ones",
        "one block alone",
        "half the micro-batch halves the activations",
        "a sharded optimizer",
        "one rank",
        "SGD without momentum",
        "the largest first",
    ],
)
def test_a_ledger_tells_what_would_need_less(
    changes: dict[str, object], saved: dict[str, int]
) -> None:
    """In bytes of each rank, the largest first and never of nothing."""
    assert [*savings(ledger(**changes)).items()] == [*saved.items()]
