"""The remedies on a device."""

from collections.abc import Iterator

import pytest
import torch

from trainperf.remedies import DevicePrefetcher


pytestmark = pytest.mark.gpu


def test_the_copy_of_the_next_batch_is_under_way_while_this_one_is_computed() -> None:
    """The loader is asked for the second batch before the first is handed out; all arrive whole."""
    asked: list[int] = []

    def loader() -> Iterator[torch.Tensor]:
        for number in range(3):
            asked.append(number)
            yield torch.full((1 << 22,), number).pin_memory()

    seen = [(len(asked), batch) for batch in DevicePrefetcher(loader(), "cuda")]

    assert [count for count, _ in seen] == [2, 3, 3]
    assert [int(batch.float().mean()) for _, batch in seen] == [0, 1, 2]
    assert {batch.device.type for _, batch in seen} == {"cuda"}
