"""Character-level GPT-2 on generated chess notation (Hugging Face Trainer)."""
import gc
import json
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

FILES, PIECES = "abcdefgh", ["", "N", "B", "R", "Q", "K"]
BLOCK = 64


def play(games, seed=8):
    rng = np.random.default_rng(seed)
    out = []
    for _ in range(games):
        for move in range(1, int(rng.integers(12, 40))):
            pair = []
            for _ in range(2):
                piece = PIECES[rng.choice(6, p=[0.5, 0.15, 0.12, 0.12, 0.08, 0.03])]
                takes = "x" if piece and rng.random() < 0.2 else ""
                check = "+" if rng.random() < 0.05 else ""
                pair.append(f"{piece}{takes}{FILES[rng.integers(8)]}{rng.integers(1, 9)}{check}")
            out.append(f"{move}. {pair[0]} {pair[1]} ")
        out.append("\n")
    return "".join(out)


class Blocks(Dataset):
    def __init__(self, text):
        self.chars = sorted(set(text))
        index = {c: i for i, c in enumerate(self.chars)}
        ids = torch.tensor([index[c] for c in text])
        self.rows = ids[:len(ids) // BLOCK * BLOCK].view(-1, BLOCK)

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return {"input_ids": self.rows[i], "labels": self.rows[i]}


class MemoryWatch(TrainerCallback):
    """Keeps an eye on the number and size of live tensors."""

    def __init__(self, warn_mb=4096):
        self.warn_mb = warn_mb
        self.peak_mb = 0.0

    def on_step_end(self, args, state, control, **kwargs):
        count, size = 0, 0
        for obj in gc.get_objects():
            if type(obj) in (torch.Tensor, torch.nn.Parameter):
                count += 1
                size += obj.numel() * obj.element_size()
        self.peak_mb = max(self.peak_mb, size / 2 ** 20)
        if self.peak_mb > self.warn_mb:
            print(f"step {state.global_step}: {count} tensors, {size / 2 ** 20:.0f} MB")


class Clock(TrainerCallback):
    def __init__(self):
        self.stamps = []

    def on_step_end(self, args, state, control, **kwargs):
        self.stamps.append(time.perf_counter())


def main():
    set_seed(21)
    dataset = Blocks(play(420))
    config = GPT2Config(vocab_size=len(dataset.chars), n_positions=BLOCK, n_embd=96, n_layer=2, n_head=4,
                        bos_token_id=0, eos_token_id=0)
    clock, watch = Clock(), MemoryWatch()
    with tempfile.TemporaryDirectory() as tmp:
        args = TrainingArguments(output_dir=tmp, per_device_train_batch_size=8, max_steps=90, learning_rate=1e-3,
                                 warmup_steps=10, logging_steps=20, save_strategy="no", report_to=[],
                                 disable_tqdm=True, use_cpu=True)
        trainer = Trainer(model=GPT2LMHeadModel(config), args=args, train_dataset=dataset, callbacks=[watch, clock])
        start = time.perf_counter()
        trainer.train()
        fit_s = time.perf_counter() - start
    print(f"peak of live tensors {watch.peak_mb:.1f} MB")
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    print("RESULT " + json.dumps({
        "step_s": (clock.stamps[-1] - clock.stamps[9]) / (len(clock.stamps) - 10),
        "fit_s": fit_s,
        "loss": float(losses[-1]),
    }))


if __name__ == "__main__":
    main()
