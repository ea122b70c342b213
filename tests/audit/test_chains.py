"""What chains of elementwise operators hand on, and what a call takes of the processor."""

import torch

from trainperf.audit import audit_step


def test_a_chain_hands_on_what_one_kernel_would_keep() -> None:
    """Of three operators over 1 kB the two results between them; nothing between two products."""
    given, square = torch.ones(256), torch.ones(8, 8)

    chain = audit_step(lambda: given.neg().exp().sin()).operators
    alone = audit_step(lambda: square.mm(square).neg().mm(square)).operators

    assert [use.inner_bytes for use in chain] == [1024, 2048, 1024]
    assert [use.inner_bytes for use in alone] == [0, 0]


def test_the_busy_time_is_part_of_the_host_time() -> None:
    """Some of it, unless the machine was never ours."""
    given = torch.ones(512, 512)

    (use,) = audit_step(lambda: given.mm(given)).operators

    assert 0 < use.busy_s <= use.host_s
