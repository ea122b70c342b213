"""Small ViT classifier on synthetic texture tiles (Hugging Face Trainer)."""
import json
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import Trainer, TrainerCallback, TrainingArguments, ViTConfig, ViTForImageClassification, set_seed

SEED = 41
SIDE = 32
CLASSES = 8
N_TRAIN, N_EVAL = 2560, 256


class Tiles(Dataset):
    def __init__(self, n, seed):
        rng = np.random.default_rng(seed)
        self.labels = rng.integers(0, CLASSES, n)
        yy, xx = np.mgrid[0:SIDE, 0:SIDE].astype(np.float32)
        angle = (self.labels * np.pi / CLASSES)[:, None, None]
        phase = rng.uniform(0, 2 * np.pi, (n, 1, 1))
        wave = np.sin(0.6 * (np.cos(angle) * xx + np.sin(angle) * yy) + phase)
        tint = rng.uniform(0.4, 1.0, (n, 3, 1, 1))
        pixels = wave[:, None] * tint + rng.normal(0, 0.8, (n, 3, SIDE, SIDE))
        self.pixels = torch.from_numpy(pixels.astype(np.float32))

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"pixel_values": self.pixels[i], "labels": int(self.labels[i])}


def accuracy(pred):
    return {"accuracy": float((pred.predictions.argmax(-1) == pred.label_ids).mean())}


class StepClock(TrainerCallback):
    """Wall time per optimizer step, pauses for evaluation and saving left out."""

    def __init__(self):
        self.paused = 0.0
        self.steps = 0

    def on_step_end(self, args, state, control, **kwargs):
        self.mark = self.last = time.perf_counter()
        self.steps = state.global_step
        self.paused_last = self.paused
        if self.steps == 20:
            self.t20, self.paused20 = self.last, self.paused

    def _pause(self, args, state, control, **kwargs):
        now = time.perf_counter()
        self.paused += now - self.mark
        self.mark = now

    on_evaluate = on_save = _pause

    def result(self, fit_s, history):
        busy = self.last - self.t20 - (self.paused_last - self.paused20)
        losses = [h["loss"] for h in history if "loss" in h]
        return {"step_s": busy / (self.steps - 20), "fit_s": fit_s, "loss": float(losses[-1])}

def main():
    set_seed(SEED)
    model = ViTForImageClassification(ViTConfig(
        image_size=SIDE, patch_size=4, hidden_size=96, num_hidden_layers=3, num_attention_heads=4,
        intermediate_size=192, num_labels=CLASSES,
    ))
    clock = StepClock()
    with tempfile.TemporaryDirectory() as tmp:
        args = TrainingArguments(
            output_dir=tmp,
            num_train_epochs=2,
            per_device_train_batch_size=16,
            per_device_eval_batch_size=64,
            learning_rate=1e-3,
            warmup_steps=30,
            logging_steps=40,
            eval_strategy="epoch",
            save_strategy="epoch",
            save_total_limit=1,
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            dataloader_pin_memory=False,
            seed=SEED,
        )
        trainer = Trainer(
            model=model, args=args, train_dataset=Tiles(N_TRAIN, SEED), eval_dataset=Tiles(N_EVAL, SEED + 1),
            compute_metrics=accuracy, callbacks=[clock],
        )
        start = time.perf_counter()
        trainer.train()
        fit_s = time.perf_counter() - start
    print("RESULT " + json.dumps(clock.result(fit_s, trainer.state.log_history)))


if __name__ == "__main__":
    main()
