"""Semi-supervised node classification with a residual GCN on a synthetic citation graph."""
import json
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = 17
NODES, CLASSES, FEATURES = 3000, 7, 600
HIDDEN = 128
EPOCHS = 300


def make_graph():
    g = torch.Generator().manual_seed(SEED)
    y = torch.randint(CLASSES, (NODES,), generator=g)
    centers = torch.randn(CLASSES, FEATURES, generator=g)
    x = 0.15 * centers[y] + torch.randn(NODES, FEATURES, generator=g)
    src = torch.randint(NODES, (40_000,), generator=g)
    dst = torch.randint(NODES, (40_000,), generator=g)
    keep = (y[src] == y[dst]) | (torch.rand(len(src), generator=g) < 0.08)
    edges = torch.stack([src[keep], dst[keep]])
    edges = torch.cat([edges, edges.flip(0)], dim=1)
    loops = torch.arange(NODES).expand(2, -1)
    edges = torch.unique(torch.cat([edges, loops], dim=1), dim=1)
    mask = torch.zeros(NODES, dtype=torch.bool)
    mask[torch.randperm(NODES, generator=g)[:600]] = True
    return x, y, edges, mask


def normalised_adjacency(edges):
    deg = torch.bincount(edges[0], minlength=NODES).float()
    w = deg[edges[0]].rsqrt() * deg[edges[1]].rsqrt()
    return torch.sparse_coo_tensor(edges, w, (NODES, NODES)).coalesce().to_sparse_csr()


class Propagate(torch.autograd.Function):
    """adj @ h for a symmetric adjacency, which is its own transpose in the backward."""

    @staticmethod
    def forward(ctx, adj, h):
        ctx.adj = adj
        return adj @ h

    @staticmethod
    def backward(ctx, grad):
        return None, ctx.adj @ grad.contiguous()


propagate = Propagate.apply


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.inp = nn.Linear(FEATURES, HIDDEN)
        self.mid = nn.ModuleList(nn.Linear(HIDDEN, HIDDEN) for _ in range(2))
        self.out = nn.Linear(HIDDEN, CLASSES)

    def forward(self, adj, x):
        h = F.relu(propagate(adj, self.inp(x)))
        for layer in self.mid:
            h = h + F.relu(propagate(adj, layer(F.dropout(h, 0.3, self.training))))
        return propagate(adj, self.out(h))


def main():
    torch.manual_seed(SEED)
    x, y, edges, mask = make_graph()
    train_idx, test_idx = mask.nonzero().squeeze(1), (~mask).nonzero().squeeze(1)
    start = time.perf_counter()
    adj = normalised_adjacency(edges)
    model = GCN()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=5e-4)

    paused, losses = 0.0, []
    for epoch in range(1, EPOCHS + 1):
        logits = model(adj, x)
        loss = F.cross_entropy(logits[train_idx], y[train_idx])
        opt.zero_grad(set_to_none=True)
        loss.backward()
        opt.step()
        losses.append(loss.item())
        if epoch == 20:
            t20 = time.perf_counter()
        if epoch % 50 == 0:
            tv = time.perf_counter()
            model.eval()
            with torch.no_grad():
                acc = (model(adj, x)[test_idx].argmax(1) == y[test_idx]).float().mean().item()
            model.train()
            print(f"epoch {epoch} loss {losses[-1]:.4f} test acc {acc:.3f}")
            paused += time.perf_counter() - tv
    end = time.perf_counter()
    print("RESULT " + json.dumps({
        "step_s": (end - t20 - paused) / (EPOCHS - 20),
        "fit_s": end - start,
        "loss": sum(losses[-20:]) / 20,
    }))


if __name__ == "__main__":
    main()
