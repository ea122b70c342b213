"""Intent detection for short queries: DistilBERT from scratch with weighted classes."""
import json
import random
import tempfile
import time
from collections import Counter, defaultdict

import torch
import torch.nn.functional as F
from torch.utils.data import Dataset
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

SEED = 88
PAD, CLS, UNK = 0, 1, 2

TEMPLATES = {
    "play_music": ["play {x} by {y}", "put on some {x}", "i want to hear {x} from {y} now please"],
    "weather": ["will it rain in {x} {y}", "how is the weather in {x}", "do i need a coat for {x} {y} evening"],
    "alarm": ["wake me at {x}", "set an alarm for {x} {y}", "remind me of {x} when i am at {y}"],
    "book_table": ["book a table for {x} at {y}", "find me a place to eat {x} near {y} for tonight"],
    "rate": ["give {x} {y} stars", "rate this {x} five out of {y}", "i would say {x} deserves {y} points"],
    "smalltalk": ["tell me a joke about {x}", "how are you {x}", "what do you think of {x} and {y}"],
}


def make_queries(n, seed):
    rnd = random.Random(seed)
    slots = [f"thing{i}" for i in range(900)]
    extra = ["please", "thanks", "ok", "um", "well", "just", "maybe", "again", "hey", "so"]
    names = sorted(TEMPLATES)
    weights = [6, 2, 3, 1, 2, 4]
    rows = []
    for _ in range(n):
        label = rnd.choices(range(len(names)), weights)[0]
        text = rnd.choice(TEMPLATES[names[label]]).format(x=rnd.choice(slots), y=rnd.choice(slots))
        words = text.split()
        for _ in range(rnd.randint(4, 12)):
            words.insert(rnd.randrange(len(words) + 1), rnd.choice(extra))
        if rnd.random() < 0.08:
            label = rnd.randrange(len(names))
        rows.append((words, label))
    return rows, names


class Queries(Dataset):
    def __init__(self, rows, vocab):
        self.rows = [{"input_ids": [CLS] + [vocab.get(w, UNK) for w in words], "label": y} for words, y in rows]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


def pad_batch(rows):
    longest = max(len(r["input_ids"]) for r in rows)
    ids = torch.tensor([r["input_ids"] + [PAD] * (longest - len(r["input_ids"])) for r in rows])
    return {
        "input_ids": ids,
        "attention_mask": (ids != PAD).long(),
        "labels": torch.tensor([r["label"] for r in rows]),
    }


class IntentTrainer(Trainer):
    def __init__(self, *args, class_weights=None, **kwargs):
        super().__init__(*args, **kwargs)
        self.class_weights = class_weights
        self.running = defaultdict(float)

    def weighted_loss(self, logits, labels):
        return F.cross_entropy(logits, labels, weight=self.class_weights)

    def track(self, logits, labels):
        self.running["correct"] += (logits.argmax(-1) == labels).sum().item()
        self.running["total"] += len(labels)

    def compute_loss(self, model, inputs, return_outputs=False, num_items_in_batch=None):
        labels = inputs.pop("labels")
        outputs = model(**inputs)
        loss = self.weighted_loss(outputs.logits, labels)
        if model.training:
            self.track(outputs.logits.detach(), labels)
        return (loss, outputs) if return_outputs else loss

    def log(self, logs, *args, **kwargs):
        if "loss" in logs and self.running["total"]:
            logs["train_accuracy"] = round(self.running["correct"] / self.running["total"], 4)
            self.running.clear()
        super().log(logs, *args, **kwargs)


class Stopwatch(TrainerCallback):
    def __init__(self):
        self.first, self.count = None, 0

    def on_step_end(self, args, state, control, **kwargs):
        if state.global_step == 10:
            self.first = time.perf_counter()
        self.last, self.count = time.perf_counter(), state.global_step

    @property
    def step_s(self):
        return (self.last - self.first) / (self.count - 10)


def main():
    set_seed(SEED)
    train_rows, names = make_queries(4000, SEED)
    dev_rows, _ = make_queries(384, SEED + 1)
    words = sorted({w for ws, _ in train_rows for w in ws})
    vocab = {w: i + 3 for i, w in enumerate(words)}
    counts = Counter(y for _, y in train_rows)
    weights = torch.tensor([len(train_rows) / (len(names) * counts[k]) for k in range(len(names))])
    model = DistilBertForSequenceClassification(DistilBertConfig(
        vocab_size=len(vocab) + 3, max_position_embeddings=48, dim=144, hidden_dim=576, n_layers=3, n_heads=6,
        num_labels=len(names), dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0, pad_token_id=PAD,
    ))
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as tmp:
        trainer = IntentTrainer(
            model=model,
            args=TrainingArguments(
                output_dir=tmp, max_steps=84, per_device_train_batch_size=48, per_device_eval_batch_size=128,
                learning_rate=4e-4, warmup_steps=12, logging_steps=21, save_strategy="no", report_to="none",
                use_cpu=True, disable_tqdm=True, dataloader_pin_memory=False, remove_unused_columns=False,
                seed=SEED,
            ),
            train_dataset=Queries(train_rows, vocab), eval_dataset=Queries(dev_rows, vocab),
            data_collator=pad_batch, class_weights=weights, callbacks=[watch],
            compute_metrics=lambda p: {"accuracy": float((p.predictions.argmax(-1) == p.label_ids).mean())},
        )
        start = time.perf_counter()
        trainer.train()
        fit_s = time.perf_counter() - start
        trainer.evaluate()
    last = [h["loss"] for h in trainer.state.log_history if "loss" in h][-1]
    print("RESULT " + json.dumps({"step_s": watch.step_s, "fit_s": fit_s, "loss": float(last)}))


if __name__ == "__main__":
    main()
