"""What chains of elementwise operators hand on, and what a call takes of the processor."""

import torch

from trainperf.audit import audit_step


def test_a_chain_hands_on_what_one_kernel_would_keep() -> None:
    """Of three operators over 1 kB the two results between them, written and read."""
    given = torch.ones(256)

    first, second, third = audit_step(lambda: given.neg().exp().sin()).operators

    assert (first.inner_bytes, second.inner_bytes, third.inner_bytes) == (1024, 2048, 1024)


def test_an_operator_that_stands_alone_hands_nothing_on() -> None:
    """A product before and after it."""
    given = torch.ones(8, 8)

    audit = audit_step(lambda: given.mm(given).neg().mm(given))

    assert [use.inner_bytes for use in audit.operators] == [0, 0]


def test_the_busy_time_is_part_of_the_host_time() -> None:
    """Some of it, unless the machine was never ours."""
    given = torch.ones(512, 512)

    (use,) = audit_step(lambda: given.mm(given)).operators

    assert 0 < use.busy_s <= use.host_s
