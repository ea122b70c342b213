"""GPT-2 on event sequences of generated melodies, packed into blocks (Hugging Face Trainer)."""
import argparse
import json
import math
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

# events: 0 end of piece, 1..60 pitch, 61..76 duration, 77..88 chord
END, PITCH, DURATION, CHORD = 0, 1, 61, 77
VOCAB = 89
SCALES = np.array([[0, 2, 4, 5, 7, 9, 11], [0, 2, 3, 5, 7, 8, 10], [0, 2, 4, 6, 7, 9, 10]])


def compose(rng):
    scale, root = SCALES[rng.integers(len(SCALES))], rng.integers(12)
    degree, events = int(rng.integers(7, 21)), []
    for bar in range(rng.integers(6, 14)):
        chord = (root + scale[(bar * 3) % 7]) % 12
        events.append(CHORD + chord)
        left = 16
        while left > 0:
            degree = int(np.clip(degree + rng.integers(-2, 3), 0, 33))
            length = int(min(left, rng.choice([2, 4, 4, 8])))
            octave, step = divmod(degree, 7)
            events.append(PITCH + (root + 12 * octave + scale[step]) % 60)
            events.append(DURATION + length - 1)
            left -= length
    return events + [END]


class PackedPieces(Dataset):
    def __init__(self, blocks, block_size, seed):
        rng = np.random.default_rng(seed)
        stream = []
        while len(stream) < blocks * block_size:
            stream.extend(compose(rng))
        self.blocks = torch.tensor(stream[:blocks * block_size]).view(blocks, block_size)

    def __len__(self):
        return len(self.blocks)

    def __getitem__(self, i):
        return {"input_ids": self.blocks[i], "labels": self.blocks[i]}


class Pace(TrainerCallback):
    def __init__(self):
        self.stamps = []

    def on_step_end(self, args, state, control, **kwargs):
        self.stamps.append(time.perf_counter())

    def step_s(self):
        return float(np.diff(self.stamps)[10:].mean())


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--block", type=int, default=96)
    ap.add_argument("--batch", type=int, default=20)
    ap.add_argument("--steps", type=int, default=75)
    ap.add_argument("--embd", type=int, default=128)
    args = ap.parse_args()
    set_seed(440)
    train, held = PackedPieces(1800, args.block, 1), PackedPieces(48, args.block, 2)
    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=VOCAB, n_positions=args.block, n_embd=args.embd, n_layer=3, n_head=4,
        activation_function="gelu_pytorch_tanh", use_cache=False, bos_token_id=END, eos_token_id=END,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    ))
    pace = Pace()
    with tempfile.TemporaryDirectory() as tmp:
        trainer = Trainer(
            model=model,
            args=TrainingArguments(
                output_dir=tmp,
                max_steps=args.steps,
                per_device_train_batch_size=args.batch,
                per_device_eval_batch_size=48,
                learning_rate=1e-3,
                lr_scheduler_type="cosine",
                warmup_steps=9,
                weight_decay=0.05,
                logging_steps=25,
                save_strategy="no",
                prediction_loss_only=True,
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
                dataloader_pin_memory=False,
                seed=440,
            ),
            train_dataset=train,
            eval_dataset=held,
            callbacks=[pace],
        )
        start = time.perf_counter()
        trainer.train()
        fit_s = time.perf_counter() - start
        metrics = trainer.evaluate()
        trainer.save_model(tmp)
    print(f"held-out perplexity {math.exp(metrics['eval_loss']):.2f}")
    loss = [h["loss"] for h in trainer.state.log_history if "loss" in h][-1]
    print("RESULT " + json.dumps({"step_s": pace.step_s(), "fit_s": fit_s, "loss": float(loss)}))


if __name__ == "__main__":
    main()
