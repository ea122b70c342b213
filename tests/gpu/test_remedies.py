"""The remedies on a device."""

from collections import deque
from collections.abc import Iterator

import pytest
import torch
from support.gpu import DEVICE, DeviceWork, slow_copies

from trainperf.core.errors import ConfigError
from trainperf.remedies import DevicePrefetcher


pytestmark = pytest.mark.gpu


def test_the_copy_of_the_next_batch_is_under_way_while_this_one_is_computed() -> None:
    """The loader is asked for the second batch before the first is handed out; all arrive whole."""
    asked: list[int] = []

    def loader() -> Iterator[torch.Tensor]:
        for number in range(3):
            asked.append(number)
            yield torch.full((1 << 22,), number).pin_memory()

    seen = [(len(asked), batch) for batch in DevicePrefetcher(loader(), DEVICE)]

    assert [count for count, _ in seen] == [2, 3, 3]
    assert [int(batch.float().mean()) for _, batch in seen] == [0, 1, 2]
    assert {batch.device.type for _, batch in seen} == {DEVICE}


class Stubborn:
    """A batch that moves itself, and whose memory nobody can be told about."""

    def to(self, device: torch.device, *, non_blocking: bool) -> "Stubborn":
        """Stay."""
        return self


def test_a_batch_whose_memory_could_be_used_again_too_early_is_refused() -> None:
    """The message names what is missing."""
    with pytest.raises(ConfigError, match="no `record_stream`"):
        list(DevicePrefetcher([Stubborn()], DEVICE))


@pytest.mark.parametrize("behind", ["compute", "copies"])
def test_batches_are_whole_when_memory_is_short_lived_and_the_loop_ends_early(behind: str) -> None:
    """Each is used after the next was copied, given back, and the loop is left half way.

    With the compute stream behind, memory that is not kept for it is used again too early; with the
    copies behind, a stream that does not wait for them reads what was there before.
    """
    work = DeviceWork()
    if behind == "copies":
        slow_copies(5.0)
    ready = deque(torch.full((1 << 18,), number).pin_memory() for number in range(40))
    batches = DevicePrefetcher((ready.popleft() for _ in range(40)), DEVICE)
    sums = []

    for number, batch in enumerate(batches):
        if behind == "compute":
            work.queue(5.0)
        sums.append((batch * 2).sum())
        del batch
        if number == 20:
            break

    assert [int(each) >> 19 for each in sums] == list(range(21))
