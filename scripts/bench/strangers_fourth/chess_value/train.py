"""Value network for endgame positions (8x8 boards, 12 piece planes)."""
import argparse
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
import torch.nn as nn
import torch.nn.functional as F

PIECE_VALUES = torch.tensor([1.0, 3.0, 3.1, 5.0, 9.0, 0.0])


def positions(n, generator):
    """Piece codes 0..12 (0 is empty) and a score from material, advanced pawns and kings."""
    boards = torch.randint(1, 13, (n, 64), generator=generator)
    boards[torch.rand(n, 64, generator=generator) < 0.8] = 0
    planes = F.one_hot(boards, 13)[..., 1:].float()
    mine, theirs = planes[..., :6], planes[..., 6:]
    material = (mine.sum(1) - theirs.sum(1)) @ PIECE_VALUES
    rank = torch.arange(64) // 8 / 7.0
    advance = (mine[..., 0] * rank).sum(1) - (theirs[..., 0] * (1 - rank)).sum(1)
    return boards.to(torch.uint8), torch.tanh((material + 1.5 * advance) / 8)


class ValueNet(nn.Module):
    def __init__(self, channels, blocks):
        super().__init__()
        self.stem = nn.Conv2d(12, channels, 3, padding=1)
        self.tower = nn.ModuleList(
            nn.Sequential(
                nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels), nn.ReLU(True),
                nn.Conv2d(channels, channels, 3, padding=1, bias=False), nn.BatchNorm2d(channels),
            )
            for _ in range(blocks)
        )
        self.head = nn.Sequential(nn.Conv2d(channels, 4, 1), nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, codes):
        x = F.one_hot(codes.long(), 13)[..., 1:].float().transpose(1, 2).reshape(-1, 12, 8, 8)
        x = self.stem(x.to(memory_format=torch.channels_last)).relu_()
        for block in self.tower:
            x = F.relu(x + block(x))
        return torch.tanh(self.head(x)).squeeze(1)


@torch.inference_mode()
def evaluate(model, boards, scores, batch=512):
    model.eval()
    total = sum(
        F.mse_loss(model(b), s, reduction="sum").item()
        for b, s in zip(boards.split(batch), scores.split(batch))
    )
    model.train()
    return total / len(scores)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--positions", type=int, default=40000)
    ap.add_argument("--channels", type=int, default=64)
    ap.add_argument("--blocks", type=int, default=4)
    ap.add_argument("--batch", type=int, default=96)
    ap.add_argument("--steps", type=int, default=400)
    ap.add_argument("--eval-every", type=int, default=200)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=64)
    args = ap.parse_args()
    torch.manual_seed(args.seed)
    boards, scores = positions(args.positions, torch.Generator().manual_seed(args.seed))
    held, boards = boards[:1024], boards[1024:]
    held_scores, scores = scores[:1024], scores[1024:]

    model = ValueNet(args.channels, args.blocks).to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, weight_decay=1e-3, fused=True)
    best, losses, stamps = float("inf"), [], []
    with TemporaryDirectory() as folder:
        start = time.perf_counter()
        for step in range(1, args.steps + 1):
            pick = torch.randint(len(boards), (args.batch,))
            loss = F.mse_loss(model(boards[pick]), scores[pick])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
            stamps.append(time.perf_counter())
            if step % 40 == 0:
                print(f"step {step} mse {sum(losses[-40:]) / 40:.4f}", flush=True)
            if step % args.eval_every == 0:
                score = evaluate(model, held, held_scores)
                print(f"held out {score:.4f}", flush=True)
                if score < best:
                    best = score
                    torch.save(model.state_dict(), Path(folder) / "best.pt")
        fit_s = time.perf_counter() - start
    print("RESULT " + json.dumps({
        "step_s": (stamps[-1] - stamps[9]) / (len(stamps) - 10),
        "fit_s": fit_s,
        "loss": sum(losses[-20:]) / 20,
    }), flush=True)


if __name__ == "__main__":
    main()
