"""A discriminator is trained on fakes that hang on the generator; the twin detaches them."""

from pathlib import Path

from faults.base import script
from faults.commanded import changed, trained


SOURCE = """
import torch
from torch import nn
from torch.nn.functional import softplus

torch.manual_seed(0)
def layers(*widths):
    pairs = zip(widths, widths[1:])
    return nn.Sequential(*(part for pair in pairs for part in (nn.Linear(*pair), nn.ReLU())))
G = nn.Sequential(layers(64, 512, 512, 512, 512), nn.Linear(512, 64))
D = nn.Sequential(layers(64, 128), nn.Linear(128, 1))
optim_G = torch.optim.SGD(G.parameters(), lr=1e-3, fused=True)
optim_D = torch.optim.SGD(D.parameters(), lr=1e-3, fused=True)
data = torch.randn(8192, 64)
for epoch in range(3):
    for picked in torch.randperm(8192).split(256):
        fake = G(torch.randn(256, 64))
        d_loss = softplus(D(fake)).mean() + softplus(-D(data[picked])).mean()
        optim_D.zero_grad()
        d_loss.backward(retain_graph=True)
        optim_D.step()
        g_loss = softplus(-D(fake)).mean()
        optim_G.zero_grad()
        g_loss.backward()
        optim_G.step()
    print(epoch, d_loss.item(), g_loss.item())
"""

ATTACHED = "softplus(D(fake)).mean() + "
DETACHED = "softplus(D(fake.detach())).mean() + "


@script("dropped_gradients", own_process=True)
def _train(out: Path, *, fixed: bool) -> None:
    trained(out, changed(SOURCE, fixed=fixed, change=(ATTACHED, DETACHED)))
