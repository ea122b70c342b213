"""Murmur detection in heart sounds, raw waveform, Hugging Face Trainer with a model of our own."""
import argparse
import json
import tempfile
import time

import numpy as np
import torch
from datasets import Dataset, Features, Sequence, Value
from torch import nn
from transformers import Trainer, TrainerCallback, TrainingArguments, set_seed

RATE = 4000


def beats(n, seconds, rng):
    """S1 and S2 of each beat, and for some a murmur between them."""
    t = np.arange(int(seconds * RATE)) / RATE
    for _ in range(n):
        murmur = int(rng.random() < 0.5)
        period = rng.uniform(0.6, 1.1)
        phase = (t + rng.random()) % period
        wave = np.exp(-((phase - 0.05) ** 2) / 4e-4) * np.sin(2 * np.pi * 60 * t)
        wave += 0.7 * np.exp(-((phase - 0.36) ** 2) / 3e-4) * np.sin(2 * np.pi * 80 * t)
        if murmur:
            gate = (phase > 0.1) & (phase < 0.32)
            wave += 0.35 * gate * np.sin(2 * np.pi * rng.uniform(150, 300) * t)
        wave += 0.25 * rng.standard_normal(len(t))
        yield {"recording": wave.astype(np.float32), "labels": murmur}


def prepare(n, seconds, seed):
    rng = np.random.default_rng(seed)
    rows = list(beats(n, seconds, rng))
    features = Features({"recording": Sequence(Value("float32")), "labels": Value("int64")})
    raw = Dataset.from_dict({k: [row[k] for row in rows] for k in rows[0]}, features=features)

    def extract(row):
        wave = np.asarray(row["recording"], dtype=np.float32)
        return {"input_values": (wave - wave.mean()) / (wave.std() + 1e-7)}

    target = Features({"input_values": Sequence(Value("float32")), "labels": Value("int64")})
    return raw.map(extract, remove_columns=["recording"], features=target)


def collate(examples):
    return {
        "input_values": torch.tensor([e["input_values"] for e in examples]),
        "labels": torch.tensor([e["labels"] for e in examples]),
    }


class HeartNet(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        layers, cin = [], 1
        for cout, kernel, stride in [(width, 20, 8), (width, 8, 4), (2 * width, 4, 2), (2 * width, 4, 2)]:
            layers += [nn.Conv1d(cin, cout, kernel, stride), nn.GroupNorm(8, cout), nn.GELU()]
            cin = cout
        self.encoder = nn.Sequential(*layers)
        self.head = nn.Linear(cin, 2)

    def forward(self, input_values, labels=None):
        hidden = self.encoder(input_values.unsqueeze(1)).mean(dim=-1)
        logits = self.head(hidden)
        loss = None if labels is None else nn.functional.cross_entropy(logits, labels)
        return {"loss": loss, "logits": logits}


class Clock(TrainerCallback):
    def __init__(self):
        self.ticks = []

    def on_step_end(self, args, state, control, **kwargs):
        self.ticks.append(time.perf_counter())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--recordings", type=int, default=320)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--steps", type=int, default=220)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--seed", type=int, default=60)
    args = parser.parse_args()
    set_seed(args.seed)
    train_set = prepare(args.recordings, args.seconds, args.seed)
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        config = TrainingArguments(
            output_dir=folder,
            max_steps=args.steps,
            per_device_train_batch_size=args.batch,
            learning_rate=args.lr,
            logging_steps=20,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            seed=args.seed,
        )
        trainer = Trainer(HeartNet(), config, train_dataset=train_set, data_collator=collate, callbacks=[clock])
        start = time.perf_counter()
        trainer.train()
        fit_s = time.perf_counter() - start
    losses = [float(row["loss"]) for row in trainer.state.log_history if "loss" in row]
    print("RESULT " + json.dumps({
        "step_s": (clock.ticks[-1] - clock.ticks[2]) / (len(clock.ticks) - 3),
        "fit_s": fit_s,
        "loss": losses[-1],
    }), flush=True)


if __name__ == "__main__":
    main()
