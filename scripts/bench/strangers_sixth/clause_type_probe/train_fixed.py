"""Contract clauses: a classification head on top of an encoder from an earlier project."""
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import Dataset
from transformers import (
    AutoModel,
    RobertaConfig,
    RobertaModel,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

CLAUSES = ["liability", "termination", "payment", "confidentiality", "jurisdiction", "assignment"]
CFG = {
    "seed": 31,
    "vocab": 2500,
    "tokens": 64,
    "n_train": 3200,
    "n_val": 192,
    "hidden": 160,
    "layers": 3,
    "heads": 5,
    "batch": 16,
    "lr": 3e-3,
}


class StepClock(TrainerCallback):
    def __init__(self):
        self.ends = []

    def on_step_end(self, args, state, control, **kwargs):
        self.ends.append(time.perf_counter())

    def median(self):
        return float(np.median(np.diff(self.ends)))


class Clauses(Dataset):
    """Tokenised clauses of a fixed length, one label each."""

    def __init__(self, n, cfg, seed):
        rng = np.random.default_rng(seed)
        labels = rng.integers(0, len(CLAUSES), n)
        ids = rng.integers(100, cfg["vocab"], (n, cfg["tokens"]))
        marker = 10 + labels[:, None] * 12 + rng.integers(0, 12, ids.shape)
        ids = np.where(rng.random(ids.shape) < 0.25, marker, ids)
        ids[:, 0], ids[:, -1] = 0, 2
        self.ids = torch.from_numpy(ids)
        self.labels = torch.from_numpy(labels)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.labels[i]}


class ClauseClassifier(nn.Module):
    def __init__(self, encoder_dir, n_classes):
        super().__init__()
        self.encoder = AutoModel.from_pretrained(encoder_dir, add_pooling_layer=False)
        self.encoder.requires_grad_(False)
        width = self.encoder.config.hidden_size
        self.head = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, width), nn.GELU(), nn.Linear(width, n_classes))
        self.loss_fn = nn.CrossEntropyLoss()

    def forward(self, input_ids, labels=None):
        states = self.encoder(input_ids=input_ids).last_hidden_state
        logits = self.head(states.mean(dim=1))
        loss = self.loss_fn(logits, labels) if labels is not None else None
        return {"loss": loss, "logits": logits}


def export_encoder(cfg, folder):
    """Stand-in for the checkpoint of the earlier project."""
    config = RobertaConfig(
        vocab_size=cfg["vocab"],
        hidden_size=cfg["hidden"],
        num_hidden_layers=cfg["layers"],
        num_attention_heads=cfg["heads"],
        intermediate_size=4 * cfg["hidden"],
        max_position_embeddings=cfg["tokens"] + 2,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    RobertaModel(config, add_pooling_layer=False).save_pretrained(folder)


def accuracy(pred):
    return {"accuracy": float((pred.predictions.argmax(-1) == pred.label_ids).mean())}


def main():
    started = time.perf_counter()
    set_seed(CFG["seed"])
    root = Path(tempfile.mkdtemp(prefix="clauses_"))
    export_encoder(CFG, root / "encoder")
    train_ds = Clauses(CFG["n_train"], CFG, CFG["seed"])
    val_ds = Clauses(CFG["n_val"], CFG, CFG["seed"] + 1)

    model = ClauseClassifier(root / "encoder", len(CLAUSES))
    optimizer = torch.optim.AdamW(model.head.parameters(), lr=CFG["lr"], weight_decay=0.01)
    scheduler = LambdaLR(optimizer, lambda step: min(1.0, (step + 1) / 20))
    print(f"training {sum(p.numel() for p in model.head.parameters()):,} parameters of the head")

    clock = StepClock()
    args = TrainingArguments(
        output_dir=str(root / "out"),
        num_train_epochs=1,
        per_device_train_batch_size=CFG["batch"],
        per_device_eval_batch_size=32,
        max_grad_norm=0.0,
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="no",
        seed=CFG["seed"],
        use_cpu=True,
        dataloader_pin_memory=False,
        disable_tqdm=True,
        report_to=[],
    )
    trainer = Trainer(
        model=model,
        args=args,
        train_dataset=train_ds,
        eval_dataset=val_ds,
        compute_metrics=accuracy,
        optimizers=(optimizer, scheduler),
        callbacks=[clock],
    )
    trainer.train()
    torch.save(model.head.state_dict(), root / "head.pt")

    last_loss = [float(h["loss"]) for h in trainer.state.log_history if "loss" in h][-1]
    print("RESULT " + json.dumps({
        "step_s": round(clock.median(), 5),
        "fit_s": round(time.perf_counter() - started, 2),
        "loss": last_loss,
    }))


if __name__ == "__main__":
    main()
