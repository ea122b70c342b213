"""Keyword spotting: log-mel features and a small CNN, one second clips at 16 kHz."""
import json
import math
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset

SEED = 21
SR = 16_000
N_FFT = 512
HOP = 200
N_MELS = 64
CLASSES = 10
BATCH = 32
EPOCHS = 4
N_CLIPS = 2240


def hz_to_mel(f):
    return 2595.0 * math.log10(1.0 + f / 700.0)


def mel_to_hz(m):
    return 700.0 * (10.0 ** (m / 2595.0) - 1.0)


def mel_filterbank(sr=SR, n_fft=N_FFT, n_mels=N_MELS, fmin=20.0, fmax=None):
    fmax = fmax or sr / 2
    lo, hi = hz_to_mel(fmin), hz_to_mel(fmax)
    edges = [mel_to_hz(lo + (hi - lo) * i / (n_mels + 1)) for i in range(n_mels + 2)]
    freqs = [k * sr / n_fft for k in range(n_fft // 2 + 1)]
    bank = np.zeros((n_mels, len(freqs)), dtype=np.float32)
    for m in range(n_mels):
        left, center, right = edges[m], edges[m + 1], edges[m + 2]
        for k, f in enumerate(freqs):
            if left < f <= center:
                bank[m, k] = (f - left) / (center - left)
            elif center < f < right:
                bank[m, k] = (right - f) / (right - center)
    return torch.from_numpy(bank)


class LogMel:
    def __init__(self):
        self.window = torch.hann_window(N_FFT)
        self.bank = mel_filterbank()

    def __call__(self, wave):
        spec = torch.stft(wave, N_FFT, HOP, window=self.window, return_complex=True)
        mel = self.bank @ spec.abs().square()
        return (mel + 1e-6).log()


def make_clips(n):
    rng = np.random.default_rng(SEED)
    labels = rng.integers(0, CLASSES, n)
    t = np.arange(SR, dtype=np.float32) / SR
    clips = np.empty((n, SR), dtype=np.int16)
    for i, label in enumerate(labels):
        f0 = 150 + 90 * label + rng.normal(0, 15)
        wave = np.sin(2 * np.pi * (f0 * t + 40 * label * t * t)) * np.exp(-3 * t)
        wave += 0.3 * rng.standard_normal(SR, dtype=np.float32)
        clips[i] = (wave / 3 * 32767).clip(-32768, 32767).astype(np.int16)
    return clips, labels


class SpeechCommands(Dataset):
    def __init__(self, clips, labels):
        self.clips = clips
        self.labels = labels
        self.features = LogMel()

    def __len__(self):
        return len(self.clips)

    def __getitem__(self, i):
        wave = torch.from_numpy(self.clips[i].astype(np.float32) / 32768.0)
        shift = (i * 7919) % 1600
        feats = self.features(torch.roll(wave, shift))
        return (feats - feats.mean()).unsqueeze(0), int(self.labels[i])


class KeywordNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 24, 5, stride=2, padding=2), nn.BatchNorm2d(24), nn.ReLU(),
            nn.Conv2d(24, 48, 3, stride=2, padding=1), nn.BatchNorm2d(48), nn.ReLU(),
            nn.Conv2d(48, 64, 3, stride=2, padding=1), nn.BatchNorm2d(64), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(),
        )
        self.head = nn.Linear(64, CLASSES)

    def forward(self, x):
        return self.head(self.body(x))


def main():
    torch.manual_seed(SEED)
    clips, labels = make_clips(N_CLIPS)
    loader = DataLoader(
        SpeechCommands(clips, labels),
        batch_size=BATCH,
        shuffle=True,
        drop_last=True,
        num_workers=1,
        persistent_workers=True,
        generator=torch.Generator().manual_seed(SEED),
    )
    model = KeywordNet()
    opt = torch.optim.AdamW(model.parameters(), lr=2e-3)

    step, losses = 0, []
    start = time.perf_counter()
    for epoch in range(EPOCHS):
        for x, y in loader:
            loss = F.cross_entropy(model(x), y)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
            losses.append(loss.item())
            step += 1
            if step == 20:
                t20 = time.perf_counter()
        print(f"epoch {epoch} loss {np.mean(losses[-len(loader):]):.4f}")
    end = time.perf_counter()
    print("RESULT " + json.dumps({
        "step_s": (end - t20) / (step - 20),
        "fit_s": end - start,
        "loss": float(np.mean(losses[-30:])),
    }))


if __name__ == "__main__":
    main()
