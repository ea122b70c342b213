"""Type of a contract clause with a small BERT."""
import argparse
import json
import tempfile
import time

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments, set_seed

KINDS = 9


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--clauses", type=int, default=300)
    p.add_argument("--length", type=int, default=384)
    p.add_argument("--batch", type=int, default=4)
    p.add_argument("--epochs", type=int, default=1)
    p.add_argument("--lr", type=float, default=5e-4)
    p.add_argument("--seed", type=int, default=12)
    return p.parse_args()


class Clauses(Dataset):
    """Token ids of clauses cut to one length; each kind has terms of its own."""

    def __init__(self, n, length, vocab=3000, seed=0):
        g = torch.Generator().manual_seed(seed)
        self.kind = torch.randint(KINDS, (n,), generator=g)
        self.ids = torch.randint(KINDS * 40 + 10, vocab, (n, length), generator=g)
        terms = 10 + self.kind.unsqueeze(1) * 40 + torch.randint(40, (n, length), generator=g)
        self.ids = torch.where(torch.rand(n, length, generator=g) < 0.1, terms, self.ids)
        self.ids[:, 0] = 1

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.kind[i]}


def build_model(length):
    config = BertConfig(
        vocab_size=3000,
        hidden_size=64,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=192,
        max_position_embeddings=length,
        attention_probs_dropout_prob=0.0,
        num_labels=KINDS,
        output_attentions=True,
        attn_implementation="eager",
    )
    return BertForSequenceClassification(config)


class Stopwatch(TrainerCallback):
    def __init__(self):
        self.stamps = []

    def on_step_end(self, args, state, control, **kwargs):
        self.stamps.append(time.perf_counter())


def main():
    args = get_args()
    set_seed(args.seed)
    dataset = Clauses(args.clauses, args.length, seed=args.seed)
    watch = Stopwatch()
    training = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="clause_"),
        per_device_train_batch_size=args.batch,
        num_train_epochs=args.epochs,
        learning_rate=args.lr,
        warmup_steps=10,
        logging_steps=10,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=args.seed,
    )
    trainer = Trainer(model=build_model(args.length), args=training, train_dataset=dataset, callbacks=[watch])
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
