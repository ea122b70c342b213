"""The basis of a spectrum and its mel bands are computed in `forward`; the twin keeps them."""

import math
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from faults.base import script, train
from faults.models import Classifier
from faults.operators import ready


LENGTH, HOP, RATE, MELS = 512, 160, 16_000, 40
BINS = LENGTH // 2 + 1


def _basis() -> Tensor:
    """Cosines and sines under a window, as kernels of a convolution."""
    times, rates = torch.arange(LENGTH) / LENGTH, torch.arange(BINS)
    angles = 2 * math.pi * torch.outer(rates, times)
    waves = torch.cat([torch.cos(angles), -torch.sin(angles)])
    return (waves * torch.hann_window(LENGTH))[:, None]


def _bands() -> Tensor:
    """Triangles over the bins, evenly spread in mel."""
    highest = 2595 * math.log10(1 + RATE / 2 / 700)
    corners = 700 * (10 ** (torch.linspace(0, highest, MELS + 2) / 2595) - 1)
    slopes = corners[None] - torch.linspace(0, RATE / 2, BINS)[:, None]
    widths = corners.diff()
    return torch.minimum(-slopes[:, :-2] / widths[:-1], slopes[:, 2:] / widths[1:]).clamp(min=0)


class Mel(nn.Module):
    """From samples to the logarithm of the mel spectrum."""

    def __init__(self, *, kept: bool) -> None:
        super().__init__()
        self._kept = kept
        self.register_buffer("basis", _basis())
        self.register_buffer("bands", _bands())

    def forward(self, waves: Tensor) -> Tensor:
        """Frames of bands."""
        basis, bands = (self.basis, self.bands) if self._kept else (_basis(), _bands())
        parts = functional.conv1d(waves[:, None], basis, stride=HOP)
        power = parts[:, :BINS].square() + parts[:, BINS:].square()
        return (power.transpose(1, 2) @ bands).clamp(min=1e-5).log()


class Last(nn.Module):
    """What a recurrent network has heard when the word ends."""

    def __init__(self) -> None:
        super().__init__()
        self.recurrent = nn.GRU(MELS, 64, batch_first=True)

    def forward(self, frames: Tensor) -> Tensor:
        """One row for each word."""
        heard: Tensor = self.recurrent(frames)[0][:, -1]
        return heard


@script("constant_rebuilt")
def _train(out: Path, *, fixed: bool) -> None:
    torch.manual_seed(0)
    model = Classifier(nn.Sequential(Mel(kept=fixed), Last(), nn.Linear(64, 10)))
    train(out, model, ready(50, 4_000, size=8))
