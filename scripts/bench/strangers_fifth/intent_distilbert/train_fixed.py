"""Intent detection for a voice assistant: DistilBERT from scratch, Hugging Face Trainer."""
import json
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)


@dataclass
class Config:
    utterances: int = 4800
    intents: int = 20
    vocab: int = 12_000
    dim: int = 256
    batch_size: int = 16
    max_steps: int = 220
    save_steps: int = 110
    eval_steps: int = 110
    lr: float = 3e-4
    seed: int = 71


def make_utterances(cfg):
    """Token ids; 0 is padding, 1 is [CLS]."""
    rng = np.random.default_rng(cfg.seed)
    keywords = rng.integers(2, 2000, (cfg.intents, 12))
    items = []
    for _ in range(cfg.utterances):
        intent = int(rng.integers(cfg.intents))
        n = int(rng.integers(16, 25))
        ids = 2 + np.minimum(rng.zipf(1.3, n), cfg.vocab // 3 - 2) * 3
        spots = rng.choice(n, 3, replace=False)
        ids[spots] = rng.choice(keywords[intent], 3)
        items.append(([1] + ids.tolist(), intent))
    return items


class Utterances(Dataset):
    def __init__(self, items):
        self.items = items

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        ids, intent = self.items[i]
        return {"input_ids": ids, "labels": intent}


def collate(features):
    longest = max(len(f["input_ids"]) for f in features)
    ids = torch.zeros(len(features), longest, dtype=torch.long)
    for row, f in enumerate(features):
        ids[row, :len(f["input_ids"])] = torch.tensor(f["input_ids"])
    return {"input_ids": ids, "attention_mask": (ids != 0).long(),
            "labels": torch.tensor([f["labels"] for f in features])}


class StepTimer(TrainerCallback):
    def __init__(self):
        self.times = []

    def on_train_begin(self, args, state, control, **kwargs):
        self.last = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        now = time.perf_counter()
        self.times.append(now - self.last)
        self.last = now


def accuracy(pred):
    return {"accuracy": float((pred.predictions.argmax(-1) == pred.label_ids).mean())}


def main():
    t0 = time.perf_counter()
    cfg = Config()
    set_seed(cfg.seed)
    items = make_utterances(cfg)
    cut = len(items) - 800
    model = DistilBertForSequenceClassification(DistilBertConfig(
        vocab_size=cfg.vocab, dim=cfg.dim, n_layers=3, n_heads=4, hidden_dim=4 * cfg.dim,
        max_position_embeddings=64, num_labels=cfg.intents))
    print(f"{model.num_parameters() / 1e6:.1f}M parameters", flush=True)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="intent_"),
        max_steps=cfg.max_steps,
        per_device_train_batch_size=cfg.batch_size,
        per_device_eval_batch_size=100,
        learning_rate=cfg.lr,
        warmup_steps=20,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=cfg.eval_steps,
        save_strategy="steps",
        save_steps=cfg.save_steps,
        save_total_limit=2,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=cfg.seed,
    )
    timer = StepTimer()
    trainer = Trainer(model=model, args=args, train_dataset=Utterances(items[:cut]),
                      eval_dataset=Utterances(items[cut:]), data_collator=collate,
                      compute_metrics=accuracy, callbacks=[timer])
    trainer.train()
    fit_s = time.perf_counter() - t0
    losses = [h["loss"] for h in trainer.state.log_history if "loss" in h]
    print("RESULT " + json.dumps({"step_s": float(np.median(timer.times)), "fit_s": fit_s,
                                  "loss": float(losses[-1])}), flush=True)


if __name__ == "__main__":
    main()
