"""U-Net for nuclei in simulated fluorescence microscopy."""
import argparse
import copy
import json
import logging
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

logger = logging.getLogger("unet")


def simulate(n, size, seed):
    g = torch.Generator().manual_seed(seed)
    ax = torch.arange(size, dtype=torch.float32)
    yy, xx = torch.meshgrid(ax, ax, indexing="ij")
    image = torch.zeros(n, size, size)
    mask = torch.zeros(n, size, size)
    for _ in range(7):
        cx, cy = torch.rand(2, n, 1, 1, generator=g) * size
        a, b = 3 + 5 * torch.rand(2, n, 1, 1, generator=g)
        t = torch.rand(n, 1, 1, generator=g) * 3.14
        u = (xx - cx) * t.cos() + (yy - cy) * t.sin()
        v = -(xx - cx) * t.sin() + (yy - cy) * t.cos()
        inside = ((u / a) ** 2 + (v / b) ** 2) < 1
        image = torch.where(inside, 0.4 + 0.6 * torch.rand(n, 1, 1, generator=g), image)
        mask = torch.where(inside, torch.ones(()), mask)
    image = F.avg_pool2d(image.unsqueeze(1), 3, 1, 1)
    image = image + 0.15 * torch.randn(image.shape, generator=g)
    return image, mask.unsqueeze(1)


class DoubleConv(nn.Sequential):
    def __init__(self, cin, cout):
        super().__init__(
            nn.Conv2d(cin, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
            nn.Conv2d(cout, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
        )


class UNet(nn.Module):
    def __init__(self, widths=(16, 32, 64)):
        super().__init__()
        self.down = nn.ModuleList()
        cin = 1
        for w in widths:
            self.down.append(DoubleConv(cin, w))
            cin = w
        self.up, self.fuse = nn.ModuleList(), nn.ModuleList()
        for w in reversed(widths[:-1]):
            self.up.append(nn.ConvTranspose2d(cin, w, 2, 2))
            self.fuse.append(DoubleConv(2 * w, w))
            cin = w
        self.head = nn.Conv2d(cin, 1, 1)

    def forward(self, x):
        skips = []
        for i, block in enumerate(self.down):
            x = block(x if i == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        skips.pop()
        for up, fuse in zip(self.up, self.fuse):
            x = fuse(torch.cat([skips.pop(), up(x)], 1))
        return self.head(x)


def dice_loss(logits, target):
    p = torch.sigmoid(logits)
    inter = (p * target).sum((1, 2, 3))
    return 1 - ((2 * inter + 1) / (p.sum((1, 2, 3)) + target.sum((1, 2, 3)) + 1)).mean()


def augment(x, y):
    """Flip or turn the whole batch."""
    k = int(torch.randint(4, ()))
    x, y = torch.rot90(x, k, (2, 3)), torch.rot90(y, k, (2, 3))
    if torch.rand(()) < 0.5:
        x, y = x.flip(3), y.flip(3)
    gain = 0.8 + 0.4 * torch.rand(len(x), 1, 1, 1)
    return x * gain, y


@torch.inference_mode()
def iou(model, images, masks, batch):
    model.eval()
    inter = union = 0.0
    for x, y in zip(images.split(batch), masks.split(batch)):
        p = model(x) > 0
        inter += (p & (y > 0.5)).sum().item()
        union += (p | (y > 0.5)).sum().item()
    model.train()
    return inter / union


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--size", type=int, default=64)
    ap.add_argument("--images", type=int, default=432)
    ap.add_argument("--lr", type=float, default=2e-3)
    ap.add_argument("--seed", type=int, default=8)
    args = ap.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    torch.manual_seed(args.seed)

    images, masks = simulate(args.images, args.size, args.seed)
    val_images, val_masks = simulate(32, args.size, args.seed + 1)
    model = UNet().to(memory_format=torch.channels_last)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr, fused=True)
    steps_per_epoch = args.images // args.batch
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, args.lr, total_steps=args.epochs * steps_per_epoch)

    best, best_state = 0.0, None
    losses, spent = [], []
    start = time.perf_counter()
    for epoch in range(args.epochs):
        order = torch.randperm(args.images)
        tick = time.perf_counter()
        for i in range(steps_per_epoch):
            take = order[i * args.batch:(i + 1) * args.batch]
            x, y = augment(images[take], masks[take])
            logits = model(x)
            loss = F.binary_cross_entropy_with_logits(logits, y) + dice_loss(logits, y)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            scheduler.step()
            losses.append(loss.item())
            now = time.perf_counter()
            spent.append(now - tick)
            tick = now
        score = iou(model, val_images, val_masks, args.batch)
        logger.info("epoch %d loss %.4f IoU %.4f", epoch, sum(losses[-steps_per_epoch:]) / steps_per_epoch, score)
        if score > best:
            best, best_state = score, copy.deepcopy(model.state_dict())
    fit_s = time.perf_counter() - start
    model.load_state_dict(best_state)
    steady = spent[8:]
    print("RESULT " + json.dumps({
        "step_s": sum(steady) / len(steady), "fit_s": fit_s, "loss": sum(losses[-20:]) / 20}))


if __name__ == "__main__":
    main()
