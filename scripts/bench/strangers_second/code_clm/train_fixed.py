"""Causal LM on generated code snippets, own byte-pair tokenizer (Hugging Face Trainer)."""
import json
import random
import tempfile
import time

import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

SEED = 1234
MERGES = 160
MAX_TOKENS = 96
PAD_ID = 256 + MERGES


def snippets(n, seed):
    rnd = random.Random(seed)
    names = ["total", "index", "value", "items", "node", "left", "right", "count", "result", "buffer"]
    calls = ["append", "update", "get", "split", "strip", "pop", "insert"]
    out = []
    for _ in range(n):
        a, b, c = rnd.sample(names, 3)
        lines = [f"def {rnd.choice(calls)}_{a}({b}, {c}={rnd.randint(0, 99)}):"]
        for _ in range(rnd.randint(2, 3)):
            lines.append(rnd.choice([
                f"    {a} = {b}.{rnd.choice(calls)}({c})",
                f"    if {b} > {rnd.randint(0, 9)}: {a} += {c}",
                f"    for {a} in range({b}):",
                f"        {c}[{a}] = {b} * {rnd.randint(2, 9)}",
            ]))
        lines.append(f"    return {a}")
        out.append("\n".join(lines) + "\n")
    return out


def pair_counts(ids):
    counts = {}
    for pair in zip(ids, ids[1:]):
        counts[pair] = counts.get(pair, 0) + 1
    return counts


def merge(ids, pair, new_id):
    out, i = [], 0
    while i < len(ids):
        if i + 1 < len(ids) and ids[i] == pair[0] and ids[i + 1] == pair[1]:
            out.append(new_id)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out


class BasicTokenizer:
    def __init__(self):
        self.merges = {}

    def train(self, text, merges):
        ids = list(text.encode("utf-8"))
        for k in range(merges):
            counts = pair_counts(ids)
            best = max(counts, key=counts.get)
            self.merges[best] = 256 + k
            ids = merge(ids, best, 256 + k)

    def encode(self, text):
        ids = list(text.encode("utf-8"))
        while len(ids) >= 2:
            counts = pair_counts(ids)
            pair = min(counts, key=lambda p: self.merges.get(p, float("inf")))
            if pair not in self.merges:
                break
            ids = merge(ids, pair, self.merges[pair])
        return ids


class SnippetDataset(Dataset):
    def __init__(self, texts, tokenizer):
        self.ids = [torch.tensor(tokenizer.encode(t)[:MAX_TOKENS]) for t in texts]

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i]}


def collate(rows):
    ids = [r["input_ids"] for r in rows]
    padded = torch.nn.utils.rnn.pad_sequence(ids, batch_first=True, padding_value=PAD_ID)
    real = padded != PAD_ID
    return {"input_ids": padded, "attention_mask": real.long(), "labels": padded.masked_fill(~real, -100)}


class StepTimes(TrainerCallback):
    def __init__(self):
        self.ends = []

    def on_step_end(self, args, state, control, **kwargs):
        self.ends.append(time.perf_counter())

    def mean(self, skip=10):
        return (self.ends[-1] - self.ends[skip]) / (len(self.ends) - 1 - skip)


def main():
    set_seed(SEED)
    corpus = snippets(576, SEED)
    tokenizer = BasicTokenizer()
    tokenizer.train("".join(corpus[:100]), MERGES)
    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=PAD_ID + 1, n_positions=MAX_TOKENS, n_embd=128, n_layer=3, n_head=4,
        activation_function="gelu_pytorch_tanh", use_cache=False, bos_token_id=PAD_ID, eos_token_id=PAD_ID,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    ))
    times = StepTimes()
    with tempfile.TemporaryDirectory() as tmp:
        args = TrainingArguments(
            output_dir=tmp, num_train_epochs=4, per_device_train_batch_size=32, learning_rate=1e-3,
            lr_scheduler_type="cosine", warmup_steps=10, weight_decay=0.01, logging_steps=18,
            save_strategy="no", report_to="none", use_cpu=True, disable_tqdm=True,
            dataloader_pin_memory=False, remove_unused_columns=False, seed=SEED,
        )
        start = time.perf_counter()
        trainer = Trainer(
            model=model, args=args, train_dataset=SnippetDataset(corpus, tokenizer),
            data_collator=collate, callbacks=[times],
        )
        trainer.train()
        fit_s = time.perf_counter() - start
        trainer.save_model(tmp)
    logged = [h["loss"] for h in trainer.state.log_history if "loss" in h]
    print("RESULT " + json.dumps({"step_s": times.mean(), "fit_s": fit_s, "loss": float(logged[-1])}))


if __name__ == "__main__":
    main()
