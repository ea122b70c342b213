"""Classify radiographs of weld seams into defect types with a compact ViT."""
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset
from torch.utils.tensorboard import SummaryWriter
from transformers import (
    Trainer,
    TrainerCallback,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
    set_seed,
)

DEFECTS = ["none", "porosity", "crack", "inclusion", "undercut"]


@dataclass
class Settings:
    seed: int = 23
    size: int = 64
    patch: int = 8
    n_train: int = 3200
    n_val: int = 256
    hidden: int = 64
    layers: int = 2
    heads: int = 4
    batch_size: int = 16
    lr: float = 5e-4


def draw_seam(label, size, rng):
    """One synthetic grey image: a bright seam with a defect of the given kind."""
    y = np.arange(size)[:, None]
    x = np.arange(size)[None, :]
    centre = size / 2 + rng.normal(0, 3)
    img = 0.7 * np.exp(-((y - centre) ** 2) / (2 * 8.0**2)) + rng.normal(0, 0.08, (size, size))
    cx, cy = rng.uniform(12, size - 12), centre + rng.normal(0, 3)
    if label == 1:
        for _ in range(6):
            px, py = cx + rng.normal(0, 6), cy + rng.normal(0, 4)
            img -= 0.5 * np.exp(-((x - px) ** 2 + (y - py) ** 2) / 3.0)
    elif label == 2:
        img -= 0.6 * (np.abs((y - cy) - 0.4 * (x - cx)) < 1.0) * (np.abs(x - cx) < 14)
    elif label == 3:
        img += 0.6 * np.exp(-((x - cx) ** 2 / 30.0 + (y - cy) ** 2 / 8.0))
    elif label == 4:
        img -= 0.5 * (np.abs(y - centre - 9) < 1.5) * (np.abs(x - cx) < 18)
    return img


def build_split(path, n, size, seed):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, len(DEFECTS), n)
    images = np.stack([draw_seam(k, size, rng) for k in labels]).astype(np.float32)
    np.savez(path, images=images, labels=labels)


class WeldImages(Dataset):
    def __init__(self, path):
        with np.load(path) as data:
            images = torch.from_numpy(data["images"])
            self.labels = torch.from_numpy(data["labels"])
        self.images = ((images - 0.25) / 0.3).unsqueeze(1)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"pixel_values": self.images[i], "labels": self.labels[i]}


class StepClock(TrainerCallback):
    def __init__(self):
        self.ends = []

    def on_step_end(self, args, state, control, **kwargs):
        self.ends.append(time.perf_counter())

    def median(self):
        return float(np.median(np.diff(self.ends)))


class TensorBoardMonitor(TrainerCallback):
    def __init__(self, logdir):
        self.writer = SummaryWriter(logdir)

    def on_step_end(self, args, state, control, model=None, **kwargs):
        if state.global_step % 100 != 0:
            return
        for name, param in model.named_parameters():
            if param.ndim > 1:
                self.writer.add_histogram(f"weights/{name}", param.detach(), state.global_step)

    def on_log(self, args, state, control, logs=None, **kwargs):
        for key in ("loss", "eval_loss", "eval_accuracy"):
            if key in logs:
                self.writer.add_scalar(key, float(logs[key]), state.global_step)

    def on_train_end(self, args, state, control, **kwargs):
        self.writer.close()


def accuracy(pred):
    return {"accuracy": float((pred.predictions.argmax(-1) == pred.label_ids).mean())}


def main():
    started = time.perf_counter()
    s = Settings()
    set_seed(s.seed)
    root = Path(tempfile.mkdtemp(prefix="welds_"))
    build_split(root / "train.npz", s.n_train, s.size, s.seed)
    build_split(root / "val.npz", s.n_val, s.size, s.seed + 1)

    model = ViTForImageClassification(
        ViTConfig(
            image_size=s.size,
            patch_size=s.patch,
            num_channels=1,
            hidden_size=s.hidden,
            num_hidden_layers=s.layers,
            num_attention_heads=s.heads,
            intermediate_size=4 * s.hidden,
            num_labels=len(DEFECTS),
        )
    )
    clock = StepClock()
    args = TrainingArguments(
        output_dir=str(root / "out"),
        num_train_epochs=1,
        per_device_train_batch_size=s.batch_size,
        per_device_eval_batch_size=32,
        learning_rate=s.lr,
        warmup_steps=20,
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="no",
        seed=s.seed,
        use_cpu=True,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        report_to=[],
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=WeldImages(root / "train.npz"),
        eval_dataset=WeldImages(root / "val.npz"),
        compute_metrics=accuracy,
        callbacks=[TensorBoardMonitor(str(root / "tb")), clock],
    )
    trainer.train()
    trainer.save_model(str(root / "model"))

    last_loss = [float(h["loss"]) for h in trainer.state.log_history if "loss" in h][-1]
    print("RESULT " + json.dumps({
        "step_s": round(clock.median(), 5),
        "fit_s": round(time.perf_counter() - started, 2),
        "loss": last_loss,
    }))


if __name__ == "__main__":
    main()
