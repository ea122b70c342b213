"""Pre-train a small GPT-2 on a synthetic news wire with the Hugging Face Trainer."""
import argparse
import json
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    default_data_collator,
    set_seed,
)


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--vocab", type=int, default=1500)
    p.add_argument("--tokens", type=int, default=150_000)
    p.add_argument("--block", type=int, default=128)
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--dim", type=int, default=160)
    p.add_argument("--heads", type=int, default=5)
    p.add_argument("--batch-size", type=int, default=6)
    p.add_argument("--max-steps", type=int, default=160)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=67)
    return p.parse_args()


def newswire(args):
    """A second-order chain with topics, so that there is something to be learnt."""
    rng = np.random.default_rng(args.seed)
    follow = rng.integers(2, args.vocab, (args.vocab, 6))
    stream = np.empty(args.tokens, dtype=np.int64)
    tok, left = 2, 0
    choice = rng.integers(0, 6, args.tokens)
    jump = rng.random(args.tokens) < 0.15
    fresh = rng.integers(2, args.vocab, args.tokens)
    for i in range(args.tokens):
        if left == 0:
            tok, left = 1, int(rng.integers(60, 240))
        elif jump[i]:
            tok = fresh[i]
        else:
            tok = follow[tok, choice[i]]
        left -= 1
        stream[i] = tok
    return torch.from_numpy(stream)


class BlockDataset(Dataset):
    def __init__(self, stream, block):
        n = len(stream) // block
        self.blocks = stream[: n * block].view(n, block)

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, i):
        ids = self.blocks[i]
        return {"input_ids": ids, "labels": ids}


class StepTimes(TrainerCallback):
    def __init__(self):
        self.times = []
        self.last = None

    def on_train_begin(self, args, state, control, **kwargs):
        self.last = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        now = time.perf_counter()
        self.times.append(now - self.last)
        self.last = now


def main():
    started = time.perf_counter()
    cli = get_args()
    set_seed(cli.seed)
    stream = newswire(cli)
    cut = int(0.95 * len(stream))
    train, valid = BlockDataset(stream[:cut], cli.block), BlockDataset(stream[cut:], cli.block)
    config = GPT2Config(
        vocab_size=cli.vocab, n_positions=cli.block, n_embd=cli.dim, n_layer=cli.layers, n_head=cli.heads,
        bos_token_id=1, eos_token_id=1, use_cache=False)
    model = GPT2LMHeadModel(config)
    print(f"{model.num_parameters() / 1e6:.2f}M parameters, {len(train)} blocks", flush=True)
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="news_gpt_"),
        max_steps=cli.max_steps,
        per_device_train_batch_size=cli.batch_size,
        per_device_eval_batch_size=16,
        gradient_checkpointing=False,
        learning_rate=cli.lr,
        lr_scheduler_type="cosine",
        warmup_steps=15,
        weight_decay=0.1,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=80,
        save_strategy="steps",
        save_steps=80,
        save_total_limit=1,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=cli.seed,
    )
    times = StepTimes()
    trainer = Trainer(model=model, args=args, train_dataset=train, eval_dataset=valid,
                      data_collator=default_data_collator, callbacks=[times])
    trainer.train()
    fit_s = time.perf_counter() - started
    losses = [h["loss"] for h in trainer.state.log_history if "loss" in h]
    evals = [h["eval_loss"] for h in trainer.state.log_history if "eval_loss" in h]
    print("perplexity", [round(float(np.exp(float(e))), 1) for e in evals])
    print("RESULT " + json.dumps({"step_s": float(np.median(times.times)), "fit_s": fit_s,
                                  "loss": float(losses[-1])}), flush=True)


if __name__ == "__main__":
    main()
