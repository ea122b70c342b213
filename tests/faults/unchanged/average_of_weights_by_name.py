"""An average of weights, name by name in each step; the twin has that of torch, all at once."""

from pathlib import Path

from faults.base import script
from faults.commanded import changed, trained


SOURCE = """
import copy
import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

torch.manual_seed(0)
layers = [part for _ in range(20) for part in (nn.Linear(64, 64), nn.LayerNorm(64), nn.GELU())]
model = nn.Sequential(*layers, nn.Linear(64, 10))
average = copy.deepcopy(model)
averaged = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.999))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
rows, labels = torch.randn(4096, 64), torch.randint(0, 10, (4096,))

def update_average(decay=0.999):
    old, new = average.state_dict(), model.state_dict()
    for name in old:
        old[name].copy_(old[name] * decay + new[name] * (1 - decay))
    average.load_state_dict(old)

for epoch in range(5):
    for picked in torch.randperm(4096).split(64):
        loss = nn.functional.cross_entropy(model(rows[picked]), labels[picked])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        update_average()
    print(epoch, loss.item())
"""


@script("unnamed_time", own_process=True)
def _train(out: Path, *, fixed: bool) -> None:
    change = "        update_average()", "        averaged.update_parameters(model)"
    trained(out, changed(SOURCE, fixed=fixed, change=change))
