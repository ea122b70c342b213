"""Q-learning with prioritized replay: weights and new priorities are read and kept one by one."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from faults.base import script
from trainperf.loop import LoopMonitor


STATE, ACTIONS, KEPT, ROWS, STEPS = 32, 6, 4_096, 512, 60
ALPHA, BETA, DISCOUNT = 0.6, 0.4, 0.99


class Replay:
    """Moves with priorities, in a list of Python or in a tensor."""

    def __init__(self, *, listed: bool) -> None:
        generator = torch.Generator().manual_seed(0)
        self.states = torch.randn(KEPT + 1, STATE, generator=generator)
        self.actions = torch.randint(0, ACTIONS, (KEPT,), generator=generator)
        self.rewards = torch.randn(KEPT, generator=generator)
        self._listed = listed
        self._list = [1.0] * KEPT
        self._tensor = torch.ones(KEPT)

    def weights(self, places: Tensor) -> Tensor:
        """How much each of these moves counts."""
        if not self._listed:
            counts = (KEPT * self._tensor[places] / self._tensor.sum()) ** -BETA
            return counts / counts.max()
        total = sum(self._list)
        weights = [(KEPT * self._list[place.item()] / total) ** -BETA for place in places]  # type: ignore[index]
        largest = max(weights)
        return torch.tensor([weight / largest for weight in weights])

    def update(self, places: Tensor, errors: Tensor) -> None:
        """What was learned of them."""
        if not self._listed:
            self._tensor[places] = (errors.abs() + 1e-5) ** ALPHA
            return
        for place, error in zip(places, errors, strict=True):
            self._list[place.item()] = (abs(error.item()) + 1e-5) ** ALPHA  # type: ignore[index]


def _network() -> nn.Sequential:
    return nn.Sequential(
        nn.Linear(STATE, 192), nn.ReLU(), nn.Linear(192, 192), nn.ReLU(), nn.Linear(192, ACTIONS)
    )


@script("hidden_syncs")
def _train(out: Path, *, fixed: bool) -> None:
    torch.manual_seed(0)
    replay, online, target = Replay(listed=not fixed), _network(), _network()
    update = torch.optim.Adam(online.parameters(), 1e-4, fused=True)
    chosen = [torch.randperm(KEPT)[:ROWS] for _ in range(STEPS)]
    with LoopMonitor(out, report=False, audit_at=12).watch(online, update) as monitor:
        for places in monitor.batches(chosen):
            weights = replay.weights(places)
            values = online(replay.states[places])
            value = values.gather(1, replay.actions[places][:, None])[:, 0]
            with torch.no_grad():
                following = target(replay.states[places + 1]).amax(dim=1)
            aim = replay.rewards[places] + DISCOUNT * following
            loss = (weights * functional.smooth_l1_loss(value, aim, reduction="none")).mean()
            update.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            update.step()
            replay.update(places, (aim - value).detach())
            monitor.end_step(loss)
