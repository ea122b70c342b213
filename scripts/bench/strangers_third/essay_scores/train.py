"""Scores of short essays with a small BERT (regression)."""
import argparse
import json
import tempfile
import time

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments, set_seed

VOCAB = 4000


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--essays", type=int, default=1400)
    p.add_argument("--length", type=int, default=96)
    p.add_argument("--batch", type=int, default=20)
    p.add_argument("--lr", type=float, default=5e-4)
    p.add_argument("--seed", type=int, default=14)
    return p.parse_args()


class Essays(Dataset):
    """Essays cut into passages of one length; rare words and few repeats raise the score."""

    def __init__(self, n, length, seed):
        g = torch.Generator().manual_seed(seed)
        skill = torch.rand(n, 1, generator=g)
        draw = torch.rand(n, length, generator=g) ** (2.5 - 1.5 * skill)
        self.ids = 5 + (draw * (VOCAB - 6)).long()
        self.ids[:, 0] = 1
        self.score = 4 * skill.squeeze(1) - 2 + 0.2 * torch.randn(n, generator=g)

    def __len__(self):
        return len(self.ids)

    def __getitems__(self, rows):
        return {"input_ids": self.ids[rows], "labels": self.score[rows]}


class Stopwatch(TrainerCallback):
    def __init__(self):
        self.stamps = []

    def on_step_end(self, args, state, control, **kwargs):
        self.stamps.append(time.perf_counter())


def as_is(batch):
    return batch


def main():
    args = get_args()
    set_seed(args.seed)
    config = BertConfig(
        vocab_size=VOCAB, hidden_size=96, num_hidden_layers=3, num_attention_heads=4, intermediate_size=384,
        max_position_embeddings=args.length, num_labels=1, problem_type="regression", attn_implementation="sdpa",
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )
    watch = Stopwatch()
    training = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="essay_"),
        per_device_train_batch_size=args.batch,
        num_train_epochs=1,
        learning_rate=args.lr,
        optim="adamw_torch_fused",
        lr_scheduler_type="cosine",
        warmup_steps=7,
        logging_steps=10,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        remove_unused_columns=False,
        seed=args.seed,
    )
    trainer = Trainer(
        model=BertForSequenceClassification(config), args=training, data_collator=as_is,
        train_dataset=Essays(args.essays, args.length, args.seed), callbacks=[watch],
    )
    start = time.perf_counter()
    trainer.train()
    fit_s = time.perf_counter() - start
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print("RESULT " + json.dumps({
        "step_s": (watch.stamps[-1] - watch.stamps[9]) / (len(watch.stamps) - 10),
        "fit_s": fit_s,
        "loss": float(losses[-1]),
    }), flush=True)


if __name__ == "__main__":
    main()
