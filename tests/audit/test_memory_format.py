"""The order of an image in memory, and what chains of elementwise operators hand on."""

import pytest
import torch
from torch import nn

from trainperf.audit import audit_step


@pytest.mark.parametrize(
    ("layout", "last"), [(torch.contiguous_format, False), (torch.channels_last, True)]
)
def test_a_convolution_says_how_its_image_lies(*, layout: torch.memory_format, last: bool) -> None:
    """Forward and backward."""
    net = nn.Conv2d(3, 4, 3).to(memory_format=layout)
    images = torch.ones(2, 3, 8, 8).contiguous(memory_format=layout)

    audit = audit_step(lambda: net(images).sum().backward())

    forward, backward = (use for use in audit.operators if "convolution" in use.name)
    assert forward.channels_last is last
    # The gradient of a sum is one number, expanded: it lies in no order.
    assert backward.channels_last is False


def test_other_operators_and_other_convolutions_say_nothing() -> None:
    """A convolution over sequences has one order only, and so has one channel."""
    rows, images = torch.ones(2, 3, 8), torch.ones(2, 1, 8, 8)
    nets = nn.Conv1d(3, 4, 3), nn.Conv2d(1, 4, 3)

    audit = audit_step(lambda: (nets[0](rows), nets[1](images), rows.neg()))

    assert {use.channels_last for use in audit.operators} == {None}


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
