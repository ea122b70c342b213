"""Healthy: the loss is read and kept in each step, which waits for nothing on a CPU."""

from pathlib import Path

from faults.base import script
from faults.commanded import trained


SOURCE = """
import torch
from torch import nn

torch.manual_seed(0)
layers = nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
model = nn.Sequential(*layers)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 400)
rows, labels = torch.randn(12800, 256), torch.randint(0, 10, (12800,))
history = []
for epoch in range(4):
    for picked in torch.randperm(12800).split(128):
        loss = nn.functional.cross_entropy(model(rows[picked]), labels[picked])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        history.append(loss.item())
    print(epoch, sum(history[-100:]) / 100)
"""


@script(own_process=True)
def _train(out: Path, *, fixed: bool) -> None:
    trained(out, SOURCE)
