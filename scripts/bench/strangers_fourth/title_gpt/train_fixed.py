# Train a small GPT-2 on product titles (causal LM) with the Trainer.
import argparse
import json
import math
import tempfile
import time

import numpy as np
import torch
from datasets import Dataset, DatasetDict
from transformers import (
    GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, default_data_collator, set_seed,
)


def make_titles(n, vocab, length, seed):
    """Titles from a table of transitions: brand, product, adjectives, size ... as in the shop's export."""
    rng = np.random.default_rng(seed)
    follow = rng.integers(0, vocab, (vocab, 4))
    tokens = np.empty((n, length), dtype=np.int64)
    tokens[:, 0] = rng.integers(0, vocab, n)
    for t in range(1, length):
        nxt = follow[tokens[:, t - 1], rng.integers(0, 4, n)]
        noise = rng.random(n) < 0.05
        tokens[:, t] = np.where(noise, rng.integers(0, vocab, n), nxt)
    return tokens


def as_dataset(tokens):
    return Dataset.from_dict({"input_ids": tokens, "labels": tokens}).with_format("torch")


class Progress(TrainerCallback):
    def __init__(self):
        self.stamps, self.loss = [], []

    def on_step_end(self, args, state, control, **kw):
        self.stamps.append(time.perf_counter())

    def on_log(self, args, state, control, logs=None, **kw):
        if logs and "loss" in logs:
            self.loss.append(float(logs["loss"]))
        if logs and "eval_loss" in logs:
            print(f"step {state.global_step} perplexity {math.exp(float(logs['eval_loss'])):.1f}", flush=True)


def training_arguments(cli, out):
    return TrainingArguments(
        output_dir=out,
        per_device_train_batch_size=cli.bs,
        per_device_eval_batch_size=64,
        max_steps=cli.steps,
        learning_rate=cli.lr,
        lr_scheduler_type="cosine",
        warmup_steps=10,
        weight_decay=0.01,
        eval_strategy="steps",
        eval_steps=cli.steps,
        logging_steps=cli.log_every,
        save_strategy="no",
        prediction_loss_only=True,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        seed=cli.seed,
    )


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--titles", type=int, default=4000)
    p.add_argument("--vocab", type=int, default=1200)
    p.add_argument("--length", type=int, default=32)
    p.add_argument("--bs", type=int, default=32)
    p.add_argument("--steps", type=int, default=100)
    p.add_argument("--log-every", dest="log_every", type=int, default=10)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=99)
    cli = p.parse_args()

    set_seed(cli.seed)
    tokens = make_titles(cli.titles, cli.vocab, cli.length, cli.seed)
    cut = int(0.75 * cli.titles)
    data = DatasetDict(train=as_dataset(tokens[:cut]), test=as_dataset(tokens[cut:]))
    config = GPT2Config(
        vocab_size=cli.vocab, n_positions=64, n_embd=160, n_layer=4, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, bos_token_id=0, eos_token_id=0, use_cache=False,
    )
    progress = Progress()
    with tempfile.TemporaryDirectory() as out:
        trainer = Trainer(
            model=GPT2LMHeadModel(config),
            args=training_arguments(cli, out),
            train_dataset=data["train"],
            eval_dataset=data["test"],
            data_collator=default_data_collator,
            callbacks=[progress],
        )
        t0 = time.perf_counter()
        trainer.train()
        fit_s = time.perf_counter() - t0
    gaps = np.diff(progress.stamps)[2:]
    print("RESULT " + json.dumps({
        "step_s": float(np.median(gaps)),
        "fit_s": fit_s,
        "loss": float(np.mean(progress.loss[-2:])),
    }), flush=True)


if __name__ == "__main__":
    main()
