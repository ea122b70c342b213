"""Route customer support tickets to one of twelve teams with a small BERT."""
import json
import random
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, processors, trainers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

TEAMS = [
    "billing", "shipping", "returns", "login", "mobile_app", "warranty",
    "invoices", "partners", "privacy", "installation", "loyalty", "other",
]


@dataclass
class Config:
    seed: int = 17
    n_train: int = 3200
    n_val: int = 240
    max_length: int = 160
    hidden: int = 128
    layers: int = 2
    heads: int = 4
    batch_size: int = 16
    epochs: int = 1
    lr: float = 1e-3


class StepClock(TrainerCallback):
    def __init__(self):
        self.ends = []

    def on_step_end(self, args, state, control, **kwargs):
        self.ends.append(time.perf_counter())

    def median(self):
        return float(np.median(np.diff(self.ends)))


def make_tickets(n, rng):
    common = [f"word{i}" for i in range(1500)]
    topical = {t: [f"{t}{i}" for i in range(40)] for t in TEAMS}
    rows = []
    for _ in range(n):
        label = rng.randrange(len(TEAMS))
        length = max(6, min(110, int(rng.lognormvariate(3.3, 0.5))))
        words = [
            rng.choice(topical[TEAMS[label]]) if rng.random() < 0.3 else rng.choice(common)
            for _ in range(length)
        ]
        rows.append({"text": " ".join(words), "label": label})
    return rows


def write_jsonl(rows, path):
    with open(path, "w") as f:
        for row in rows:
            f.write(json.dumps(row) + "\n")


def read_jsonl(path):
    with open(path) as f:
        return Dataset.from_list([json.loads(line) for line in f])


def build_tokenizer(texts):
    tok = Tokenizer(models.WordLevel(unk_token="[UNK]"))
    tok.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(
        vocab_size=3000, special_tokens=["[PAD]", "[UNK]", "[CLS]", "[SEP]"], show_progress=False
    )
    tok.train_from_iterator(texts, trainer)
    tok.post_processor = processors.BertProcessing(
        ("[SEP]", tok.token_to_id("[SEP]")), ("[CLS]", tok.token_to_id("[CLS]"))
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=tok, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    )


def compute_metrics(pred):
    guess = pred.predictions.argmax(-1)
    return {"accuracy": float((guess == pred.label_ids).mean())}


def main():
    started = time.perf_counter()
    cfg = Config()
    set_seed(cfg.seed)
    rng = random.Random(cfg.seed)
    work = Path(tempfile.mkdtemp(prefix="tickets_"))
    write_jsonl(make_tickets(cfg.n_train, rng), work / "train.jsonl")
    write_jsonl(make_tickets(cfg.n_val, rng), work / "val.jsonl")
    train_ds, val_ds = read_jsonl(work / "train.jsonl"), read_jsonl(work / "val.jsonl")
    tokenizer = build_tokenizer(train_ds["text"])

    def encode(batch):
        return tokenizer(batch["text"], truncation=True, max_length=cfg.max_length)

    train_ds = train_ds.map(encode, batched=True, remove_columns=["text"])
    val_ds = val_ds.map(encode, batched=True, remove_columns=["text"])

    model = BertForSequenceClassification(
        BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=cfg.hidden,
            num_hidden_layers=cfg.layers,
            num_attention_heads=cfg.heads,
            intermediate_size=4 * cfg.hidden,
            max_position_embeddings=cfg.max_length,
            hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0,
            num_labels=len(TEAMS),
        )
    )
    clock = StepClock()
    args = TrainingArguments(
        output_dir=str(work / "out"),
        num_train_epochs=cfg.epochs,
        per_device_train_batch_size=cfg.batch_size,
        per_device_eval_batch_size=32,
        learning_rate=cfg.lr,
        lr_scheduler_type="cosine",
        warmup_steps=20,
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="no",
        seed=cfg.seed,
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
        processing_class=tokenizer,
        compute_metrics=compute_metrics,
        callbacks=[clock],
    )
    trainer.train()
    trainer.save_model(str(work / "router"))

    last_loss = [float(h["loss"]) for h in trainer.state.log_history if "loss" in h][-1]
    print("RESULT " + json.dumps({
        "step_s": round(clock.median(), 5),
        "fit_s": round(time.perf_counter() - started, 2),
        "loss": last_loss,
    }))


if __name__ == "__main__":
    main()
