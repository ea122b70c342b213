"""Sleep stage classification from two-channel EEG recordings."""
import json
import os
import statistics
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from scipy.signal import butter, sosfiltfilt
from torch.utils.data import DataLoader, Dataset

STAGES = ["W", "N1", "N2", "N3", "REM"]


@dataclass
class Config:
    n_subjects: int = 22
    epochs_per_subject: int = 24
    fs: int = 100
    epoch_sec: int = 30
    n_channels: int = 2
    band: tuple = (0.3, 35.0)
    batch_size: int = 8
    num_workers: int = 1
    n_epochs: int = 3
    lr: float = 1e-3
    weight_decay: float = 1e-3
    val_subjects: int = 2
    log_every: int = 25
    seed: int = 11


def synthesize_recordings(root, cfg):
    rng = np.random.default_rng(cfg.seed)
    win = cfg.fs * cfg.epoch_sec
    t = np.arange(win) / cfg.fs
    centre = [10.0, 6.5, 13.0, 1.5, 4.5]
    for s in range(cfg.n_subjects):
        labels = rng.integers(0, len(STAGES), cfg.epochs_per_subject)
        sig = rng.standard_normal((cfg.n_channels, win * cfg.epochs_per_subject)).astype(np.float32)
        for i, y in enumerate(labels):
            f = centre[y] + rng.normal(0, 0.4)
            sig[:, i * win:(i + 1) * win] += 0.7 * np.sin(2 * np.pi * f * t + rng.uniform(0, 6.28))
        sig += np.linspace(0, 20, sig.shape[1], dtype=np.float32)
        np.save(os.path.join(root, f"sub{s:03d}_eeg.npy"), sig.astype(np.float32))
        np.save(os.path.join(root, f"sub{s:03d}_hyp.npy"), labels)


class SleepDataset(Dataset):
    def __init__(self, root, subjects, cfg):
        self.cfg = cfg
        self.root = root
        self.win = cfg.fs * cfg.epoch_sec
        self.sos = butter(4, cfg.band, btype="bandpass", fs=cfg.fs, output="sos")
        self.index = []
        for s in subjects:
            hyp = np.load(os.path.join(root, f"sub{s:03d}_hyp.npy"))
            self.index += [(s, i, int(y)) for i, y in enumerate(hyp)]

    def load_recording(self, subject):
        sig = np.load(os.path.join(self.root, f"sub{subject:03d}_eeg.npy"))
        sig = sosfiltfilt(self.sos, sig, axis=-1)
        sig = (sig - sig.mean(-1, keepdims=True)) / sig.std(-1, keepdims=True)
        return sig.astype(np.float32)

    def __len__(self):
        return len(self.index)

    def __getitem__(self, idx):
        subject, i, label = self.index[idx]
        sig = self.load_recording(subject)
        window = sig[:, i * self.win:(i + 1) * self.win]
        return torch.from_numpy(window.copy()), label


def conv_block(cin, cout, k, stride):
    return nn.Sequential(
        nn.Conv1d(cin, cout, k, stride=stride, padding=k // 2, bias=False),
        nn.BatchNorm1d(cout),
        nn.ReLU(inplace=True),
    )


class SleepNet(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.features = nn.Sequential(
            conv_block(cfg.n_channels, 24, 25, 3),
            conv_block(24, 48, 9, 2),
            nn.MaxPool1d(4),
            conv_block(48, 96, 7, 1),
            conv_block(96, 96, 7, 1),
            nn.AdaptiveAvgPool1d(1),
        )
        self.head = nn.Sequential(nn.Flatten(), nn.Dropout(0.2), nn.Linear(96, len(STAGES)))

    def forward(self, x):
        return self.head(self.features(x))


@torch.inference_mode()
def evaluate(model, loader):
    model.eval()
    correct = total = 0
    for x, y in loader:
        correct += (model(x).argmax(1) == y).sum().item()
        total += len(y)
    model.train()
    return correct / total


def main():
    t_start = time.perf_counter()
    cfg = Config()
    torch.manual_seed(cfg.seed)
    with tempfile.TemporaryDirectory() as root:
        synthesize_recordings(root, cfg)
        split = cfg.n_subjects - cfg.val_subjects
        train_ds = SleepDataset(root, range(split), cfg)
        val_ds = SleepDataset(root, range(split, cfg.n_subjects), cfg)
        train_loader = DataLoader(train_ds, cfg.batch_size, shuffle=True, drop_last=True,
                                  num_workers=cfg.num_workers, persistent_workers=True)
        val_loader = DataLoader(val_ds, 2 * cfg.batch_size)

        model = SleepNet(cfg)
        opt = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
        sched = torch.optim.lr_scheduler.OneCycleLR(opt, cfg.lr * 3, total_steps=cfg.n_epochs * len(train_loader))

        losses, step_times, step = [], [], 0
        for epoch in range(cfg.n_epochs):
            t_last = time.perf_counter()
            for x, y in train_loader:
                loss = F.cross_entropy(model(x), y, label_smoothing=0.05)
                opt.zero_grad(set_to_none=True)
                loss.backward()
                opt.step()
                sched.step()
                losses.append(loss.item())
                step += 1
                now = time.perf_counter()
                step_times.append(now - t_last)
                t_last = now
                if step % cfg.log_every == 0:
                    print(f"epoch {epoch} step {step} loss {losses[-1]:.4f} lr {sched.get_last_lr()[0]:.2e}")
            if epoch == cfg.n_epochs - 1:
                acc = evaluate(model, val_loader)
                print(f"validation accuracy {acc:.3f}")
        torch.save(model.state_dict(), os.path.join(root, "sleepnet.pt"))

    print("RESULT " + json.dumps({
        "step_s": statistics.median(step_times),
        "fit_s": time.perf_counter() - t_start,
        "loss": sum(losses[-10:]) / 10,
    }))


if __name__ == "__main__":
    main()
