"""Spot spoken commands in one-second clips with a temporal convolution network."""
import json
import os
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

COMMANDS = ["yes", "no", "up", "down", "left", "right", "stop", "go", "on", "off"]


@dataclass
class Config:
    sample_rate: int = 16_000
    clips: int = 1600
    val_clips: int = 320
    n_fft: int = 512
    hop: int = 160
    mels: int = 40
    channels: int = 80
    blocks: int = 3
    batch_size: int = 32
    epochs: int = 4
    lr: float = 2e-3
    weight_decay: float = 1e-3
    time_mask: int = 12
    log_every: int = 25
    seed: int = 13


def synthesize(count, cfg, generator):
    """Two gliding formants per command, with random pitch, onset and background noise."""
    time_axis = torch.arange(cfg.sample_rate) / cfg.sample_rate
    labels = torch.arange(count) % len(COMMANDS)
    first = 300 + 60 * labels + 30 * torch.randn(count, generator=generator)
    second = 1100 + 170 * ((labels * 3) % len(COMMANDS)) + 80 * torch.randn(count, generator=generator)
    glide = 200 * ((labels % 3) - 1).float()
    onset = 0.15 + 0.4 * torch.rand(count, 1, generator=generator)
    envelope = torch.exp(-((time_axis - onset - 0.15) / 0.12).square())
    phase_a = 2 * torch.pi * (first[:, None] + glide[:, None] * time_axis) * time_axis
    phase_b = 2 * torch.pi * (second[:, None] - glide[:, None] * time_axis) * time_axis
    noise = torch.randn(count, cfg.sample_rate, generator=generator)
    waves = envelope * (phase_a.sin() + 0.6 * phase_b.sin()) + 0.4 * noise
    return waves, labels


def mel_filterbank(cfg):
    def to_mel(hz):
        return 2595 * np.log10(1 + hz / 700)

    edges = np.linspace(to_mel(20), to_mel(cfg.sample_rate / 2), cfg.mels + 2)
    edges = 700 * (10 ** (edges / 2595) - 1)
    bins = np.linspace(0, cfg.sample_rate / 2, cfg.n_fft // 2 + 1)
    lower, center, upper = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    rising = (bins - lower) / (center - lower)
    falling = (upper - bins) / (upper - center)
    return torch.from_numpy(np.maximum(0, np.minimum(rising, falling)).astype(np.float32))


def log_mel(waves, cfg):
    window = torch.hann_window(cfg.n_fft)
    bank = mel_filterbank(cfg)
    features = []
    for chunk in waves.split(200):
        spectrum = torch.stft(chunk, cfg.n_fft, cfg.hop, window=window, return_complex=True)
        features.append((bank @ spectrum.abs().square()).clamp_min(1e-6).log())
    return torch.cat(features)


class ResidualBlock(nn.Module):
    def __init__(self, channels, dilation):
        super().__init__()
        self.conv1 = nn.Conv1d(channels, channels, 5, padding=2 * dilation, dilation=dilation, bias=False)
        self.norm1 = nn.BatchNorm1d(channels)
        self.conv2 = nn.Conv1d(channels, channels, 5, padding=2 * dilation, dilation=dilation, bias=False)
        self.norm2 = nn.BatchNorm1d(channels)

    def forward(self, x):
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(x + self.norm2(self.conv2(y)))


class KeywordNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.stem = nn.Conv1d(cfg.mels, cfg.channels, 3, padding=1)
        self.blocks = nn.Sequential(*(ResidualBlock(cfg.channels, 2 ** i) for i in range(cfg.blocks)))
        self.head = nn.Linear(cfg.channels, len(COMMANDS))

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean(-1))


def mask_time(features, width):
    frames = torch.arange(features.shape[-1])
    begin = torch.randint(0, features.shape[-1] - width, (len(features), 1))
    masked = (frames >= begin) & (frames < begin + width)
    return features.masked_fill(masked[:, None, :], 0.0)


@torch.inference_mode()
def evaluate(model, features, labels, size):
    model.eval()
    correct = torch.zeros(len(COMMANDS))
    for x, y in zip(features.split(size), labels.split(size)):
        hit = (model(x).argmax(1) == y).float()
        correct.index_add_(0, y, hit)
    model.train()
    recall = correct / labels.bincount(minlength=len(COMMANDS))
    return correct.sum().item() / len(labels), dict(zip(COMMANDS, recall.tolist()))


def main():
    start = time.perf_counter()
    cfg = Config()
    torch.manual_seed(cfg.seed)
    generator = torch.Generator().manual_seed(cfg.seed)
    waves, labels = synthesize(cfg.clips, cfg, generator)
    val_waves, val_labels = synthesize(cfg.val_clips, cfg, generator)
    features, val_features = log_mel(waves, cfg), log_mel(val_waves, cfg)
    mean, std = features.mean((0, 2), keepdim=True), features.std((0, 2), keepdim=True)
    features, val_features = (features - mean) / std, (val_features - mean) / std
    print(f"{len(labels)} clips, features {tuple(features.shape[1:])}")

    model = KeywordNet(cfg)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
    steps_per_epoch = len(labels) // cfg.batch_size
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, cfg.lr, cfg.epochs * steps_per_epoch)

    losses, ends = [], []
    for epoch in range(cfg.epochs):
        order = torch.randperm(len(labels))[:steps_per_epoch * cfg.batch_size]
        for rows in order.split(cfg.batch_size):
            x = mask_time(features[rows], cfg.time_mask)
            loss = F.cross_entropy(model(x), labels[rows])
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            schedule.step()
            losses.append(loss.item())
            ends.append(time.perf_counter())
            if len(losses) % cfg.log_every == 0:
                print(f"epoch {epoch} step {len(losses)} loss {np.mean(losses[-cfg.log_every:]):.4f}")
        accuracy, recall = evaluate(model, val_features, val_labels, 64)
        worst = min(recall, key=recall.get)
        print(f"epoch {epoch} val accuracy {accuracy:.3f} (worst: {worst} {recall[worst]:.2f})")

    with tempfile.TemporaryDirectory(prefix="keywords_") as folder:
        torch.save({"model": model.state_dict(), "mean": mean, "std": std}, os.path.join(folder, "keyword.pt"))
    print("RESULT " + json.dumps({"step_s": float(np.median(np.diff(ends))),
                                  "fit_s": time.perf_counter() - start,
                                  "loss": float(np.mean(losses[-10:]))}))


if __name__ == "__main__":
    main()
