"""Spoken words, each padded to a second as the feature extractor is told; plain loop."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from faults.base import script
from trainperf.loop import LoopMonitor


SECOND, ROWS, STEPS = 16_000, 8, 40


class Listener(nn.Module):
    """Strided convolutions over the samples, and a mean of the frames that are no padding."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv1d(1, 32, 10, stride=5)
        self.second = nn.Conv1d(32, 48, 8, stride=4)
        self.third = nn.Conv1d(48, 48, 4, stride=2)
        self.score = nn.Linear(48, 30)

    def forward(self, waves: Tensor, mask: Tensor) -> Tensor:
        """Scores of thirty words."""
        hidden = waves[:, None]
        for layer in (self.first, self.second, self.third):
            hidden = functional.gelu(layer(hidden))
        counts = mask[:, None, ::40][..., : hidden.shape[-1]].to(hidden.dtype)
        scores: Tensor = self.score((hidden * counts).sum(-1) / counts.sum(-1).clamp(1))
        return scores


def _batches(*, to: int | None) -> list[dict[str, Tensor]]:
    generator = torch.Generator().manual_seed(0)
    batches = []
    for lengths in torch.randint(3_000, 8_000, (STEPS, ROWS), generator=generator):
        mask = torch.arange(to or int(lengths.max())) < lengths[:, None]
        waves = torch.randn(mask.shape, generator=generator) * mask
        labels = torch.randint(0, 30, (ROWS,), generator=generator)
        batches.append(
            {"input_values": waves, "attention_mask": mask.to(torch.int32), "labels": labels}
        )
    return batches


@script("padding", changes=("pad_less",))
def _train(out: Path, *, fixed: bool) -> None:
    torch.manual_seed(0)
    batches = _batches(to=None if fixed else SECOND)
    model = Listener()
    update = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    with LoopMonitor(out, report=False, audit_at=12).watch(model, update) as monitor:
        for batch in monitor.batches(batches):
            scores = model(batch["input_values"], batch["attention_mask"])
            loss = functional.cross_entropy(scores, batch["labels"])
            update.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            update.step()
            monitor.end_step(loss)
