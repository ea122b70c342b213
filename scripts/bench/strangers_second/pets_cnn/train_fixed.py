"""Breed classifier on a folder of photos (class per sub-folder)."""
import argparse
import json
import logging
import random
import shutil
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from PIL import Image, ImageDraw
from torch.utils.data import DataLoader, Dataset

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(message)s")
log = logging.getLogger("pets")

BREEDS = ["beagle", "boxer", "pug", "birman", "bombay", "ragdoll", "sphynx", "siamese"]


def make_photos(root, per_class, side, seed):
    """Stands in for the download: photos of `side` pixels, JPEG."""
    rng = np.random.default_rng(seed)
    for k, breed in enumerate(BREEDS):
        folder = root / breed
        folder.mkdir(parents=True)
        for i in range(per_class):
            base = rng.integers(40, 215, (12, 12, 3), dtype=np.uint8)
            img = Image.fromarray(base).resize((side, side), Image.Resampling.BILINEAR)
            draw = ImageDraw.Draw(img)
            for _ in range(2 + k % 4):
                x, y = rng.integers(0, side * 3 // 4, 2).tolist()
                w, h = (rng.integers(side // 8, side // 3, 2)).tolist()
                colour = tuple(int(c) for c in (60 + 20 * k, rng.integers(0, 255), 230 - 25 * k))
                (draw.ellipse if k < 4 else draw.rectangle)([x, y, x + w, y + h], fill=colour)
            img.save(folder / f"{i:04d}.jpg", quality=92)


class PetFolder(Dataset):
    MEAN = np.array([0.485, 0.456, 0.406], dtype=np.float32)
    STD = np.array([0.229, 0.224, 0.225], dtype=np.float32)

    def __init__(self, root, load_size=72, crop=64, train=True):
        self.load_size, self.crop, self.train = load_size, crop, train
        self.items = []
        for label, breed in enumerate(sorted(BREEDS)):
            for path in sorted((root / breed).glob("*.jpg")):
                self.items.append((path, label))
        self.pixels = [self.load(path) for path, _ in self.items]

    def __len__(self):
        return len(self.items)

    def load(self, path):
        with Image.open(path) as img:
            img = img.convert("RGB")
            return np.asarray(img.resize((self.load_size, self.load_size), Image.Resampling.BICUBIC))

    def __getitem__(self, index):
        label = self.items[index][1]
        img = self.pixels[index]
        slack = self.load_size - self.crop
        if self.train:
            top, left = random.randint(0, slack), random.randint(0, slack)
        else:
            top = left = slack // 2
        img = img[top:top + self.crop, left:left + self.crop]
        if self.train and random.random() < 0.5:
            img = img[:, ::-1]
        img = (img.astype(np.float32) / 255.0 - self.MEAN) / self.STD
        return torch.from_numpy(np.ascontiguousarray(img.transpose(2, 0, 1))), label


class Block(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(cin, cout, 3, stride, 1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True),
            nn.Conv2d(cout, cout, 3, 1, 1, bias=False), nn.BatchNorm2d(cout),
        )
        self.skip = nn.Sequential(nn.Conv2d(cin, cout, 1, stride, bias=False), nn.BatchNorm2d(cout))

    def forward(self, x):
        return F.relu(self.body(x) + self.skip(x))


def build_model(classes, width=16):
    return nn.Sequential(
        nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
        Block(width, width, 1), Block(width, 2 * width, 2), Block(2 * width, 4 * width, 2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.1), nn.Linear(4 * width, classes),
    )


def seed_worker(worker_id):
    random.seed(torch.initial_seed() % 2**32)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=8)
    ap.add_argument("--batch-size", type=int, default=32)
    ap.add_argument("--lr", type=float, default=0.05)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--side", type=int, default=512)
    ap.add_argument("--per-class", type=int, default=40)
    ap.add_argument("--seed", type=int, default=11)
    args = ap.parse_args()

    random.seed(args.seed)
    torch.manual_seed(args.seed)
    root = Path(tempfile.mkdtemp(prefix="pets_"))
    make_photos(root, args.per_class, args.side, args.seed)

    start = time.perf_counter()
    dataset = PetFolder(root)
    loader = DataLoader(dataset, batch_size=args.batch_size, shuffle=True, num_workers=args.workers,
                        drop_last=True, persistent_workers=True, worker_init_fn=seed_worker)
    model = build_model(len(BREEDS))
    opt = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4, nesterov=True)
    sched = torch.optim.lr_scheduler.OneCycleLR(opt, args.lr, total_steps=args.epochs * len(loader))

    step, losses, mark = 0, [], None
    for epoch in range(args.epochs):
        model.train()
        hits = seen = 0
        for images, labels in loader:
            logits = model(images)
            loss = F.cross_entropy(logits, labels)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            sched.step()
            losses.append(loss.item())
            hits += (logits.detach().argmax(1) == labels).sum().item()
            seen += len(labels)
            step += 1
            if step == 10:
                mark = time.perf_counter()
        log.info("epoch %d loss %.4f acc %.3f", epoch, np.mean(losses[-len(loader):]), hits / seen)
    end = time.perf_counter()
    shutil.rmtree(root)
    print("RESULT " + json.dumps({
        "step_s": (end - mark) / (step - 10),
        "fit_s": end - start,
        "loss": float(np.mean(losses[-len(loader):])),
    }))


if __name__ == "__main__":
    main()
