"""The remedies on a device."""

from collections.abc import Iterator

import pytest
import torch

from trainperf.core.errors import ConfigError
from trainperf.remedies import DevicePrefetcher


pytestmark = pytest.mark.gpu


@pytest.mark.real_clock
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


class Stubborn:
    """A batch that moves itself, and whose memory nobody can be told about."""

    def to(self, device: torch.device, *, non_blocking: bool) -> "Stubborn":
        """Stay."""
        return self


def test_a_batch_whose_memory_could_be_used_again_too_early_is_refused() -> None:
    """The message names what is missing."""
    with pytest.raises(ConfigError, match="no `record_stream`"):
        list(DevicePrefetcher([Stubborn()], "cuda"))


def test_batches_are_whole_when_memory_is_short_lived_and_the_loop_ends_early() -> None:
    """Each is used after the next was copied, given back, and the loop is left half way."""
    batches = DevicePrefetcher(
        (torch.full((1 << 20,), number).pin_memory() for number in range(40)), "cuda"
    )
    sums = []

    for number, batch in enumerate(batches):
        sums.append((batch * 2).sum())
        del batch
        if number == 20:
            break

    assert [int(each) >> 21 for each in sums] == list(range(21))
