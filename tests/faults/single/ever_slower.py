"""Every forward takes longer than the one before: nothing ever settles."""

from pathlib import Path

from torch import Tensor, nn

from faults.base import script, train
from faults.calm import WIDTH, Calm, Ready
from faults.stand_in import compute


class Slowing(nn.Module):
    """Passes its input on, *growth* times later each time."""

    def __init__(self, growth: float) -> None:
        super().__init__()
        self._growth, self._sleep_s = growth, 0.004

    def forward(self, rows: Tensor) -> Tensor:
        """The same rows."""
        compute(self._sleep_s)
        self._sleep_s *= self._growth
        return rows


@script("no_steady_state", same_work=False)
def _train(out: Path, *, fixed: bool) -> None:
    body = nn.Sequential(Slowing(1.0 if fixed else 1.06), nn.Linear(WIDTH, 10))
    train(out, Calm(body), Ready(60), audit_at=None)
