"""A module's buffers after a trial: losses of training do not show them, those of evaluation do."""

import torch

from trainperf.trials.state import Snapshot


def test_running_statistics_are_those_from_before_the_trial() -> None:
    """Of a batch norm: its mean, its variance and how many batches it has seen."""
    torch.manual_seed(0)
    module = torch.nn.BatchNorm1d(4)
    module(torch.randn(8, 4))
    before = {name: buffer.clone() for name, buffer in module.named_buffers()}
    snapshot = Snapshot(module, [])

    for _ in range(2):
        module(torch.randn(8, 4) * 3 + 5)
        assert not torch.equal(module.running_mean, before["running_mean"])
        snapshot.restore()

        assert len(before) == 3
        assert all(torch.equal(buffer, before[name]) for name, buffer in module.named_buffers())
