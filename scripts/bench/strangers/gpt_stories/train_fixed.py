"""Small GPT-2 language model with smoothed labels (Hugging Face Trainer)."""
import json
import tempfile
import time

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

SEED = 37
VOCAB = 6000
BLOCK = 64
N = 2400
STEPS = 250
EPSILON = 0.1


class Stories(Dataset):
    """Blocks of a first-order Markov chain with few successors a word."""

    def __init__(self):
        rng = np.random.default_rng(SEED)
        successors = rng.integers(0, VOCAB, (VOCAB, 4))
        tokens = np.empty((N, BLOCK), dtype=np.int64)
        tokens[:, 0] = rng.zipf(1.4, N) % VOCAB
        for t in range(1, BLOCK):
            tokens[:, t] = successors[tokens[:, t - 1], rng.integers(0, 4, N)] % (VOCAB // 8)
        self.tokens = torch.from_numpy(tokens)

    def __len__(self):
        return N

    def __getitem__(self, i):
        return {"input_ids": self.tokens[i], "labels": self.tokens[i]}


class SmoothedTrainer(Trainer):
    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        logits = outputs.logits[:, :-1].flatten(0, 1)
        target = labels[:, 1:].flatten()
        loss = F.cross_entropy(logits, target, label_smoothing=EPSILON)
        return (loss, outputs) if return_outputs else loss


class StepClock(TrainerCallback):
    """Wall time per optimizer step, pauses for evaluation and saving left out."""

    def __init__(self):
        self.paused = 0.0
        self.steps = 0

    def on_step_end(self, args, state, control, **kwargs):
        self.mark = self.last = time.perf_counter()
        self.steps = state.global_step
        self.paused_last = self.paused
        if self.steps == 20:
            self.t20, self.paused20 = self.last, self.paused

    def _pause(self, args, state, control, **kwargs):
        now = time.perf_counter()
        self.paused += now - self.mark
        self.mark = now

    on_evaluate = on_save = _pause

    def result(self, fit_s, history):
        busy = self.last - self.t20 - (self.paused_last - self.paused20)
        losses = [h["loss"] for h in history if "loss" in h]
        return {"step_s": busy / (self.steps - 20), "fit_s": fit_s, "loss": float(losses[-1])}

def main():
    set_seed(SEED)
    model = GPT2LMHeadModel(GPT2Config(
        vocab_size=VOCAB, n_positions=BLOCK, n_embd=96, n_layer=2, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False,
    ))
    clock = StepClock()
    with tempfile.TemporaryDirectory() as tmp:
        args = TrainingArguments(
            output_dir=tmp,
            max_steps=STEPS,
            per_device_train_batch_size=8,
            learning_rate=2e-3,
            warmup_steps=25,
            logging_steps=50,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            dataloader_pin_memory=False,
            seed=SEED,
        )
        trainer = SmoothedTrainer(model=model, args=args, train_dataset=Stories(), callbacks=[clock])
        start = time.perf_counter()
        trainer.train()
        fit_s = time.perf_counter() - start
    print("RESULT " + json.dumps(clock.result(fit_s, trainer.state.log_history)))


if __name__ == "__main__":
    main()
