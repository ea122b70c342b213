"""Gradients clipped parameter by parameter, each norm read; the twin clips all in one call."""

from pathlib import Path

from faults.base import script
from faults.commanded import changed, trained


SOURCE = """
import torch
from torch import nn

torch.manual_seed(0)
layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True, dropout=0.0)
blocks = nn.TransformerEncoder(layer, 6, enable_nested_tensor=False)
model = nn.Sequential(nn.Embedding(500, 64), blocks, nn.Linear(64, 500))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
data = torch.randint(0, 500, (1600, 17))
norms = []
for epoch in range(2):
    for picked in torch.randperm(1600).split(8):
        batch = data[picked]
        scores = model(batch[:, :-1])
        loss = nn.functional.cross_entropy(scores.flatten(0, 1), batch[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        for parameter in model.parameters():
            norms.append(nn.utils.clip_grad_norm_(parameter, 1.0).item())
        optimizer.step()
    print(epoch, loss.item(), max(norms))
"""

ONE_BY_ONE = """        for parameter in model.parameters():
            norms.append(nn.utils.clip_grad_norm_(parameter, 1.0).item())
"""
AT_ONCE = """        norms.append(nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
"""


@script("unnamed_time", own_process=True)
def _train(out: Path, *, fixed: bool) -> None:
    trained(out, changed(SOURCE, fixed=fixed, change=(ONE_BY_ONE, AT_ONCE)))
