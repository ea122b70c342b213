"""Masked language model on synthetic protein families (Hugging Face Trainer)."""
import json
import tempfile
import time

import torch
from torch.utils.data import Dataset
from transformers import RobertaConfig, RobertaForMaskedLM, Trainer, TrainerCallback, TrainingArguments, set_seed

SEED = 29
AMINO = 20
PAD, MASK, OFFSET = 1, 3, 4
LENGTH = 48
N = 4000
STEPS = 250


class Families(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(SEED)
        proto = torch.randint(AMINO, (30, LENGTH), generator=g)
        seq = proto[torch.randint(30, (N,), generator=g)]
        mutate = torch.rand(N, LENGTH, generator=g) < 0.15
        seq = torch.where(mutate, torch.randint(AMINO, (N, LENGTH), generator=g), seq) + OFFSET
        chosen = torch.rand(N, LENGTH, generator=g) < 0.15
        self.labels = torch.where(chosen, seq, torch.tensor(-100))
        self.inputs = torch.where(chosen, torch.tensor(MASK), seq)

    def __len__(self):
        return N

    def __getitem__(self, i):
        return {"input_ids": self.inputs[i], "labels": self.labels[i]}


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
    model = RobertaForMaskedLM(RobertaConfig(
        vocab_size=AMINO + OFFSET, hidden_size=256, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=1024, max_position_embeddings=LENGTH + 2, pad_token_id=PAD,
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    ))
    clock = StepClock()
    with tempfile.TemporaryDirectory() as tmp:
        args = TrainingArguments(
            output_dir=tmp,
            max_steps=STEPS,
            per_device_train_batch_size=4,
            learning_rate=4e-4,
            warmup_steps=25,
            logging_steps=50,
            save_strategy="steps",
            save_steps=125,
            save_total_limit=2,
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            dataloader_pin_memory=False,
            seed=SEED,
        )
        trainer = Trainer(model=model, args=args, train_dataset=Families(), callbacks=[clock])
        start = time.perf_counter()
        trainer.train()
        fit_s = time.perf_counter() - start
    print("RESULT " + json.dumps(clock.result(fit_s, trainer.state.log_history)))


if __name__ == "__main__":
    main()
