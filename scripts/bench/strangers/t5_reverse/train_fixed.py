"""Train a tiny T5 to reverse and sort token sequences (Hugging Face Trainer)."""
import json
import tempfile
import time

import torch
from torch.utils.data import Dataset
from transformers import T5Config, T5ForConditionalGeneration, Trainer, TrainerCallback, TrainingArguments, set_seed

SEED = 23
VOCAB = 64
LENGTH = 16
N = 8000
STEPS = 250


class Sequences(Dataset):
    """First token 2: reverse the rest. First token 3: sort the rest. 0 is pad, 1 is end."""

    def __init__(self):
        g = torch.Generator().manual_seed(SEED)
        body = torch.randint(4, VOCAB, (N, LENGTH), generator=g)
        task = torch.randint(2, 4, (N, 1), generator=g)
        target = torch.where(task == 2, body.flip(1), body.sort(1).values)
        end = torch.ones(N, 1, dtype=torch.long)
        self.src = torch.cat([task, body, end], dim=1)
        self.tgt = torch.cat([target, end], dim=1)

    def __len__(self):
        return N

    def __getitem__(self, i):
        return {"input_ids": self.src[i], "labels": self.tgt[i]}


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
    model = T5ForConditionalGeneration(T5Config(
        vocab_size=VOCAB, d_model=96, d_kv=24, d_ff=192, num_layers=2, num_heads=4, dropout_rate=0.0,
        decoder_start_token_id=0, pad_token_id=0, eos_token_id=1,
    ))
    clock = StepClock()
    with tempfile.TemporaryDirectory() as tmp:
        args = TrainingArguments(
            output_dir=tmp,
            max_steps=STEPS,
            per_device_train_batch_size=32,
            learning_rate=2e-3,
            lr_scheduler_type="cosine",
            warmup_steps=20,
            logging_steps=50,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            dataloader_pin_memory=False,
            seed=SEED,
        )
        trainer = Trainer(model=model, args=args, train_dataset=Sequences(), callbacks=[clock])
        trainer.model_accepts_loss_kwargs = False  # T5 averages its own loss
        start = time.perf_counter()
        trainer.train()
        fit_s = time.perf_counter() - start
    print("RESULT " + json.dumps(clock.result(fit_s, trainer.state.log_history)))


if __name__ == "__main__":
    main()
