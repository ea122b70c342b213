"""Masked language model over windows of enzyme sequences (amino-acid alphabet)."""
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import (
    RobertaConfig,
    RobertaForMaskedLM,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

RESIDUES = "ACDEFGHIKLMNPQRSTVWY"
BOS, PAD, EOS, MASK, OFFSET = 0, 1, 2, 3, 4
VOCAB = OFFSET + len(RESIDUES)


@dataclass
class Config:
    seed: int = 41
    window: int = 96
    n_train: int = 3200
    n_val: int = 128
    hidden: int = 128
    layers: int = 3
    heads: int = 4
    batch_size: int = 16
    mask_share: float = 0.15
    lr: float = 6e-4


def write_sequences(path, n, window, seed):
    """Sequences with repeated motifs, encoded as one byte per residue."""
    rng = np.random.default_rng(seed)
    motifs = np.random.default_rng(7).integers(0, len(RESIDUES), (40, 8))
    rows = motifs[rng.integers(0, len(motifs), (n, window // 8 + 1))].reshape(n, -1)[:, : window - 2]
    noise = rng.random(rows.shape) < 0.1
    rows = np.where(noise, rng.integers(0, len(RESIDUES), rows.shape), rows) + OFFSET
    edge = np.ones((n, 1), dtype=rows.dtype)
    np.save(path, np.concatenate([BOS * edge, rows, EOS * edge], axis=1).astype(np.uint8))


class SequenceWindows(Dataset):
    def __init__(self, path):
        self.ids = torch.from_numpy(np.load(path)).long()

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i]


class MaskingCollator:
    def __init__(self, share):
        self.share = share

    def __call__(self, rows):
        ids = torch.stack(rows)
        chosen = (torch.rand(ids.shape) < self.share) & (ids >= OFFSET)
        labels = ids.masked_fill(~chosen, -100)
        dice = torch.rand(ids.shape)
        inputs = ids.masked_fill(chosen & (dice < 0.8), MASK)
        swap = chosen & (dice >= 0.9)
        inputs = torch.where(swap, torch.randint_like(ids, OFFSET, VOCAB), inputs)
        return {"input_ids": inputs, "labels": labels}


class StepClock(TrainerCallback):
    def __init__(self):
        self.ends = []

    def on_step_end(self, args, state, control, **kwargs):
        self.ends.append(time.perf_counter())

    def median(self):
        return float(np.median(np.diff(self.ends)))


def build_model(cfg):
    return RobertaForMaskedLM(
        RobertaConfig(
            vocab_size=VOCAB,
            hidden_size=cfg.hidden,
            num_hidden_layers=cfg.layers,
            num_attention_heads=cfg.heads,
            intermediate_size=4 * cfg.hidden,
            max_position_embeddings=cfg.window + 2,
            pad_token_id=PAD,
            bos_token_id=BOS,
            eos_token_id=EOS,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
        )
    )


def main():
    started = time.perf_counter()
    cfg = Config()
    set_seed(cfg.seed)
    root = Path(tempfile.mkdtemp(prefix="enzymes_"))
    write_sequences(root / "train.npy", cfg.n_train, cfg.window, cfg.seed)
    write_sequences(root / "val.npy", cfg.n_val, cfg.window, cfg.seed + 1)
    model = build_model(cfg)
    clock = StepClock()

    args = TrainingArguments(
        output_dir=str(root / "out"),
        num_train_epochs=1,
        per_device_train_batch_size=cfg.batch_size,
        per_device_eval_batch_size=32,
        learning_rate=cfg.lr,
        lr_scheduler_type="cosine",
        warmup_steps=30,
        weight_decay=0.01,
        logging_steps=10,
        eval_strategy="steps",
        eval_steps=100,
        prediction_loss_only=True,
        save_strategy="no",
        seed=cfg.seed,
        use_cpu=True,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        remove_unused_columns=False,
        report_to=[],
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=SequenceWindows(root / "train.npy"),
        eval_dataset=SequenceWindows(root / "val.npy"),
        data_collator=MaskingCollator(cfg.mask_share),
        callbacks=[clock],
    )
    trainer.train()
    trainer.save_model(str(root / "model"))

    last_loss = [float(h["loss"]) for h in trainer.state.log_history if "loss" in h][-1]
    print("RESULT " + json.dumps({
        "step_s": round(clock.median(), 5),
        "fit_s": round(time.perf_counter() - started, 2),
        "loss": last_loss,
    }))


if __name__ == "__main__":
    main()
