"""Masked language model over templated system logs (Hugging Face Trainer)."""
import argparse
import json
import tempfile
import time

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainerCallback, TrainingArguments, set_seed

PAD, MASK, FIRST = 0, 1, 2


def log_lines(n, vocab, length, seed):
    """Each line is one of 150 templates; some places hold free parameters."""
    fixed = np.random.default_rng(1)
    templates = fixed.integers(FIRST, vocab, (150, length))
    free = fixed.random((150, length)) < 0.2
    rng = np.random.default_rng(seed)
    which = rng.zipf(1.3, n) % 150
    parameters = FIRST + rng.integers(0, 400, (n, length))
    return np.where(free[which], parameters, templates[which])


class MaskedLines(Dataset):
    def __init__(self, lines, seed, rate=0.15):
        ids = torch.from_numpy(lines)
        g = torch.Generator().manual_seed(seed)
        chosen = torch.rand(ids.shape, generator=g) < rate
        self.inputs = ids.masked_fill(chosen, MASK)
        self.labels = ids.masked_fill(~chosen, -100)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, i):
        return {"input_ids": self.inputs[i], "labels": self.labels[i]}


def keep_argmax(logits, labels):
    return logits.argmax(-1)


def compute_metrics(eval_pred):
    predictions, labels = eval_pred
    chosen = labels != -100
    return {"masked_accuracy": float((predictions == labels)[chosen].mean())}


class Clock(TrainerCallback):
    """Seconds between step ends, without evaluations."""

    def __init__(self):
        self.steps, self.mark = [], None

    def on_train_begin(self, args, state, control, **kwargs):
        self.mark = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        now = time.perf_counter()
        self.steps.append(now - self.mark)
        self.mark = now

    def on_evaluate(self, args, state, control, **kwargs):
        self.mark = time.perf_counter()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--vocab", type=int, default=5000)
    ap.add_argument("--length", type=int, default=36)
    ap.add_argument("--batch", type=int, default=16)
    ap.add_argument("--steps", type=int, default=72)
    ap.add_argument("--eval-lines", type=int, default=384)
    ap.add_argument("--seed", type=int, default=6)
    opt = ap.parse_args()
    set_seed(opt.seed)
    train_set = MaskedLines(log_lines(4000, opt.vocab, opt.length, 10), 20)
    eval_set = MaskedLines(log_lines(opt.eval_lines, opt.vocab, opt.length, 11), 21)
    model = BertForMaskedLM(BertConfig(
        vocab_size=opt.vocab, hidden_size=128, num_hidden_layers=2, num_attention_heads=4, intermediate_size=512,
        max_position_embeddings=opt.length, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    ))
    clock = Clock()
    with tempfile.TemporaryDirectory() as tmp:
        args = TrainingArguments(
            output_dir=tmp,
            max_steps=opt.steps,
            per_device_train_batch_size=opt.batch,
            per_device_eval_batch_size=opt.batch,
            eval_strategy="steps",
            eval_steps=opt.steps // 3,
            logging_steps=opt.steps // 6,
            learning_rate=2e-3,
            warmup_steps=10,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            dataloader_pin_memory=False,
            seed=opt.seed,
        )
        trainer = Trainer(
            model=model,
            args=args,
            train_dataset=train_set,
            eval_dataset=eval_set,
            compute_metrics=compute_metrics,
            preprocess_logits_for_metrics=keep_argmax,
            callbacks=[clock],
        )
        start = time.perf_counter()
        trainer.train()
        fit_s = time.perf_counter() - start
    loss = [h["loss"] for h in trainer.state.log_history if "loss" in h][-1]
    print("RESULT " + json.dumps({
        "step_s": float(np.mean(clock.steps[10:])), "fit_s": fit_s, "loss": float(loss)}))


if __name__ == "__main__":
    main()
