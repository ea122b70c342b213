"""What would need less memory: reckoned by hand beside what is reckoned."""

import msgspec

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


def test_checkpointing_leaves_the_activations_of_one_block() -> None:
    """The largest; what is outside of the blocks stays."""
    kept = activations(Net_blocks_0_a=30, Net_blocks_0_b=10, Net_blocks_1=50, Net_head=99)

    found = savings(ledger(activations=kept))

    assert found["activation checkpointing of Net.blocks"] == (40 + 50 - 50) * MIB


def test_blocks_within_blocks_count_for_the_outer_ones() -> None:
    """Two of two layers each: one of the two is left."""
    kept = activations(N_b_0_l_0=10, N_b_0_l_1=10, N_b_1_l_0=10, N_b_1_l_1=10)

    assert savings(ledger(activations=kept))["activation checkpointing of N.b"] == 20 * MIB


def test_one_block_alone_saves_nothing() -> None:
    """Its activations are needed all at once."""
    kept = activations(Net_blocks_0=30)

    assert savings(ledger(activations=kept)) == {}


def test_half_the_micro_batch_halves_the_activations() -> None:
    """With twice as many of them in a step."""
    found = savings(ledger(activations_bytes=64 * MIB, micro_batches=3))

    assert found == {"half the micro-batch, twice as many of them": 32 * MIB}


def test_a_sharded_optimizer_is_divided_by_the_ranks_there_are() -> None:
    """Master weights are shared out too; of one rank nothing is."""
    state = dict.fromkeys(("exp_avg", "exp_avg_sq", "master weights"), 4 * 10**6)

    four = savings(ledger(world_size=4, optimizer_state_bytes=state))

    assert four == {"an optimizer sharded over 4 ranks (ZeRO-1)": 9 * 10**6}
    assert savings(ledger()) == {}


def test_savings_come_the_largest_first_and_never_of_nothing() -> None:
    """SGD without momentum has no state to share out."""
    plain = ledger(optimizer_state_bytes={})
    several = savings(ledger(activations_bytes=64 * MIB, world_size=8))

    assert savings(plain) == {}
    assert list(several.values()) == [32 * MIB, 7 * 10**6]
