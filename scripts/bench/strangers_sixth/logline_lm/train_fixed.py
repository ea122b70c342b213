"""Causal language model over server log templates, used later for anomaly scores."""
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

CONFIG = {
    "seed": 5,
    "vocab": 5000,
    "window": 64,
    "train_windows": 1280,
    "val_windows": 272,
    "hidden": 128,
    "layers": 2,
    "heads": 4,
    "batch_size": 8,
    "eval_every": 40,
    "lr": 1e-3,
}


class StepClock(TrainerCallback):
    def __init__(self):
        self.ends = []

    def on_step_end(self, args, state, control, **kwargs):
        self.ends.append(time.perf_counter())

    def median(self):
        return float(np.median(np.diff(self.ends)))


def simulate_logs(n_windows, window, vocab, rng):
    """Sessions made of event templates, with a few variable fields in between."""
    templates = np.random.default_rng(99).zipf(1.4, size=(300, 6)) % (vocab - 1000)
    n_events = n_windows * window // 7 + 1
    events = rng.zipf(1.5, size=n_events) % len(templates)
    fields = rng.integers(vocab - 1000, vocab, size=(n_events, 1))
    stream = np.concatenate([templates[events], fields], axis=1).reshape(-1)
    return stream[: n_windows * window].reshape(n_windows, window).astype(np.int64)


class LogWindows(Dataset):
    def __init__(self, path):
        self.windows = torch.from_numpy(np.load(path))

    def __len__(self):
        return len(self.windows)

    def __getitem__(self, i):
        ids = self.windows[i]
        return {"input_ids": ids, "labels": ids}


def prepare(cfg, folder):
    rng = np.random.default_rng(cfg["seed"])
    for split in ("train", "val"):
        windows = simulate_logs(cfg[f"{split}_windows"], cfg["window"], cfg["vocab"], rng)
        np.save(folder / f"{split}.npy", windows)
    return LogWindows(folder / "train.npy"), LogWindows(folder / "val.npy")


def build_model(cfg):
    return GPT2LMHeadModel(
        GPT2Config(
            vocab_size=cfg["vocab"],
            n_positions=cfg["window"],
            n_embd=cfg["hidden"],
            n_layer=cfg["layers"],
            n_head=cfg["heads"],
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            use_cache=False,
            bos_token_id=0,
            eos_token_id=0,
        )
    )


def most_likely_token(logits, labels):
    return logits.argmax(dim=-1)


def next_event_accuracy(pred):
    hits = pred.predictions[:, :-1] == pred.label_ids[:, 1:]
    return {"accuracy": float(hits.mean()), "last_token_accuracy": float(hits[:, -1].mean())}


def main():
    started = time.perf_counter()
    cfg = CONFIG
    set_seed(cfg["seed"])
    folder = Path(tempfile.mkdtemp(prefix="loglm_"))
    train_ds, val_ds = prepare(cfg, folder)
    model = build_model(cfg)
    clock = StepClock()

    args = TrainingArguments(
        output_dir=str(folder / "out"),
        num_train_epochs=1,
        per_device_train_batch_size=cfg["batch_size"],
        per_device_eval_batch_size=cfg["batch_size"],
        learning_rate=cfg["lr"],
        lr_scheduler_type="linear",
        warmup_steps=20,
        weight_decay=0.01,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=cfg["eval_every"],
        save_strategy="no",
        seed=cfg["seed"],
        use_cpu=True,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        report_to=[],
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=train_ds,
        eval_dataset=val_ds,
        compute_metrics=next_event_accuracy,
        preprocess_logits_for_metrics=most_likely_token,
        callbacks=[clock],
    )
    trainer.train()
    trainer.save_model(str(folder / "model"))

    last_loss = [float(h["loss"]) for h in trainer.state.log_history if "loss" in h][-1]
    print("RESULT " + json.dumps({
        "step_s": round(clock.median(), 5),
        "fit_s": round(time.perf_counter() - started, 2),
        "loss": last_loss,
    }))


if __name__ == "__main__":
    main()
