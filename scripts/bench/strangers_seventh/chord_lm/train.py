"""Causal language model over chord progressions, GPT-2 architecture, trained on packed blocks."""
import json
import math
import random
import statistics
import tempfile
import time
from dataclasses import dataclass

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

ROOTS = ["C", "Db", "D", "Eb", "E", "F", "Gb", "G", "Ab", "A", "Bb", "B"]
QUALITIES = ["maj7", "7", "m7", "m7b5", "dim7", "6", "sus4"]
BARS = ["|", "||", "<song>", "</song>"]

# degree in semitones and chord quality
PATTERNS = [
    [(2, "m7"), (7, "7"), (0, "maj7"), (0, "6")],
    [(0, "maj7"), (9, "m7"), (2, "m7"), (7, "7")],
    [(0, "7"), (5, "7"), (0, "7"), (7, "7"), (5, "7"), (0, "7")],
    [(0, "m7"), (8, "maj7"), (3, "maj7"), (10, "7")],
    [(2, "m7b5"), (7, "7"), (0, "m7"), (0, "m7")],
    [(5, "maj7"), (5, "m7"), (4, "m7"), (9, "7")],
]


@dataclass
class Config:
    seed: int = 17
    num_songs: int = 4200
    eval_fraction: float = 0.05
    block_size: int = 64
    width: int = 128
    layers: int = 3
    heads: int = 4
    batch_size: int = 16
    learning_rate: float = 6e-4
    warmup_steps: int = 20
    max_steps: int = 200
    eval_steps: int = 100


def build_vocabulary():
    words = BARS + [root + quality for root in ROOTS for quality in QUALITIES]
    return {word: i for i, word in enumerate(words)}


def compose(rng, table):
    key = rng.randrange(12)
    form = [rng.choice(PATTERNS) for _ in range(2)]
    tokens = [table["<song>"]]
    for section in (0, 0, 1, 0):
        for degree, quality in form[section]:
            if rng.random() < 0.05:
                quality = rng.choice(QUALITIES)
            tokens.append(table[ROOTS[(key + degree) % 12] + quality])
            tokens.append(table["|"])
        tokens[-1] = table["||"]
        if rng.random() < 0.1:
            key = (key + rng.choice([2, 5, 7])) % 12
    tokens.append(table["</song>"])
    return tokens


class PackedBlocks(Dataset):
    """Songs laid end to end and cut into blocks of equal length."""

    def __init__(self, songs, block_size):
        stream = torch.tensor([token for song in songs for token in song], dtype=torch.long)
        usable = len(stream) // block_size * block_size
        self.blocks = stream[:usable].view(-1, block_size)

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, index):
        block = self.blocks[index]
        return {"input_ids": block, "labels": block}


class StepClock(TrainerCallback):
    def __init__(self):
        self.stamps = []

    def on_step_end(self, args, state, control, **kwargs):
        self.stamps.append(time.perf_counter())


class PerplexityPrinter(TrainerCallback):
    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        if metrics and "eval_loss" in metrics:
            print(f"step {state.global_step}: held-out perplexity {math.exp(metrics['eval_loss']):.3f}")


def sample(model, table, bars=8):
    names = {i: word for word, i in table.items()}
    prompt = torch.tensor([[table["<song>"]]])
    model.eval()
    out = model.generate(
        prompt, attention_mask=torch.ones_like(prompt), do_sample=True, top_k=8,
        max_new_tokens=2 * bars, pad_token_id=table["</song>"], eos_token_id=table["</song>"],
    )
    return " ".join(names[i] for i in out[0].tolist())


def main():
    began = time.perf_counter()
    cfg = Config()
    set_seed(cfg.seed)
    rng = random.Random(cfg.seed)
    table = build_vocabulary()
    songs = [compose(rng, table) for _ in range(cfg.num_songs)]
    cut = int(len(songs) * cfg.eval_fraction)
    train, held_out = PackedBlocks(songs[cut:], cfg.block_size), PackedBlocks(songs[:cut], cfg.block_size)

    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=len(table), n_positions=cfg.block_size, n_embd=cfg.width, n_layer=cfg.layers, n_head=cfg.heads,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
        bos_token_id=table["<song>"], eos_token_id=table["</song>"],
    ))
    print(f"{len(train)} training blocks, {len(held_out)} held out, {model.num_parameters() / 1e6:.2f} M parameters")

    clock = StepClock()
    with tempfile.TemporaryDirectory() as output_dir:
        args = TrainingArguments(
            output_dir=output_dir, seed=cfg.seed, use_cpu=True, max_steps=cfg.max_steps,
            learning_rate=cfg.learning_rate, lr_scheduler_type="cosine",
            warmup_steps=cfg.warmup_steps, weight_decay=0.05, adam_beta2=0.98,
            per_device_train_batch_size=cfg.batch_size, per_device_eval_batch_size=32,
            dataloader_pin_memory=False, dataloader_drop_last=True, prediction_loss_only=True,
            eval_strategy="steps", eval_steps=cfg.eval_steps, save_strategy="no",
            logging_steps=10, report_to=[], disable_tqdm=True,
        )
        trainer = Trainer(
            model=model, args=args, train_dataset=train, eval_dataset=held_out,
            data_collator=default_data_collator, callbacks=[clock, PerplexityPrinter()],
        )
        trainer.train()
        trainer.save_model(output_dir)

    model.config.use_cache = True
    print("sample:", sample(model, table))
    gaps = [b - a for a, b in zip(clock.stamps, clock.stamps[1:])]
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print("RESULT " + json.dumps({
        "step_s": round(statistics.median(gaps), 5),
        "fit_s": round(time.perf_counter() - began, 3),
        "loss": round(float(losses[-1]), 5),
    }))


if __name__ == "__main__":
    main()
