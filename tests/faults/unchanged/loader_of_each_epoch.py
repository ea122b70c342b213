"""A DataLoader with a worker is made anew in each of many short epochs; the twin keeps one."""

from pathlib import Path

from faults.base import script
from faults.commanded import changed, trained


SOURCE = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def main():
    torch.manual_seed(0)
    dataset = TensorDataset(torch.randn(640, 128), torch.randint(0, 10, (640,)))
    wide = 1024
    layers = nn.Linear(128, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, 10)
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, fused=True)
    for epoch in range(12):
        loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=1)
        for rows, labels in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(rows), labels)
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())

if __name__ == "__main__":
    main()
"""

EACH = """    for epoch in range(12):
        loader = DataLoader(dataset, batch_size=32, shuffle=True, num_workers=1)
"""
ONCE = """    loader = DataLoader(
        dataset, batch_size=32, shuffle=True, num_workers=1, persistent_workers=True
    )
    for epoch in range(12):
"""


@script("epoch_start", own_process=True)
def _train(out: Path, *, fixed: bool) -> None:
    trained(out, changed(SOURCE, fixed=fixed, change=(EACH, ONCE)))
