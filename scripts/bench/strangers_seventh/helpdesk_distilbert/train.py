"""Assign incoming helpdesk messages to one of eight teams with a small DistilBERT."""
import json
import random
import statistics
import tempfile
import time
from dataclasses import dataclass

import numpy as np
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import (
    DistilBertConfig,
    DistilBertForSequenceClassification,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

TEAMS = ["billing", "shipping", "accounts", "hardware", "network", "returns", "mobile_app", "legal"]


@dataclass
class Config:
    seed: int = 13
    num_train: int = 3200
    num_eval: int = 320
    max_length: int = 128
    dim: int = 128
    hidden_dim: int = 512
    layers: int = 2
    heads: int = 4
    batch_size: int = 16
    learning_rate: float = 1e-3
    epochs: int = 1


def make_lexicon(rng):
    syllables = ["ba", "co", "di", "fe", "gu", "ha", "lo", "mi", "nu", "pe", "ra", "si", "to", "ve", "xo", "zu"]
    words = set()
    while len(words) < 2400:
        words.add("".join(rng.choice(syllables) for _ in range(rng.randint(2, 4))))
    words = sorted(words)
    rng.shuffle(words)
    topical = {team: words[i * 80:(i + 1) * 80] for i, team in enumerate(TEAMS)}
    return topical, words[len(TEAMS) * 80:]


def write_message(rng, topical, common, label):
    length = rng.randint(6, 30)
    words = []
    for _ in range(length):
        draw = rng.random()
        if draw < 0.40:
            words.append(rng.choice(topical[TEAMS[label]]))
        elif draw < 0.50:
            words.append(rng.choice(topical[rng.choice(TEAMS)]))
        else:
            words.append(rng.choice(common))
    return " ".join(words)


def make_messages(cfg):
    rng = random.Random(cfg.seed)
    topical, common = make_lexicon(rng)

    def split(size):
        labels = [rng.randrange(len(TEAMS)) for _ in range(size)]
        return Dataset.from_dict({
            "text": [write_message(rng, topical, common, label) for label in labels],
            "label": labels,
        })

    train, held_out = split(cfg.num_train), split(cfg.num_eval)
    vocabulary = sorted({w for words in topical.values() for w in words} | set(common))
    return train, held_out, vocabulary


def build_tokenizer(vocabulary, max_length):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    table = {token: i for i, token in enumerate(special + vocabulary)}
    backend = Tokenizer(models.WordLevel(table, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[("[CLS]", table["[CLS]"]), ("[SEP]", table["[SEP]"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]",
        cls_token="[CLS]", sep_token="[SEP]", model_max_length=max_length,
        model_input_names=["input_ids", "attention_mask"],
    )


def compute_metrics(prediction):
    predicted = prediction.predictions.argmax(axis=-1)
    recalls = [
        float((predicted[prediction.label_ids == k] == k).mean())
        for k in range(len(TEAMS)) if (prediction.label_ids == k).any()
    ]
    return {
        "accuracy": float((predicted == prediction.label_ids).mean()),
        "macro_recall": float(np.mean(recalls)),
    }


class StepClock(TrainerCallback):
    def __init__(self):
        self.stamps = []

    def on_step_end(self, args, state, control, **kwargs):
        self.stamps.append(time.perf_counter())

    def median(self):
        return statistics.median(b - a for a, b in zip(self.stamps, self.stamps[1:]))


def main():
    began = time.perf_counter()
    cfg = Config()
    set_seed(cfg.seed)
    train, held_out, vocabulary = make_messages(cfg)
    tokenizer = build_tokenizer(vocabulary, cfg.max_length)

    def tokenize(batch):
        return tokenizer(batch["text"], truncation=True, padding="max_length", max_length=cfg.max_length)

    train = train.map(tokenize, batched=True, remove_columns=["text"])
    held_out = held_out.map(tokenize, batched=True, remove_columns=["text"])

    model = DistilBertForSequenceClassification(DistilBertConfig(
        vocab_size=len(tokenizer), max_position_embeddings=cfg.max_length,
        dim=cfg.dim, hidden_dim=cfg.hidden_dim, n_layers=cfg.layers, n_heads=cfg.heads,
        dropout=0.0, attention_dropout=0.0, seq_classif_dropout=0.0,
        pad_token_id=tokenizer.pad_token_id, num_labels=len(TEAMS),
        id2label=dict(enumerate(TEAMS)), label2id={team: i for i, team in enumerate(TEAMS)},
    ))
    clock = StepClock()
    with tempfile.TemporaryDirectory() as output_dir:
        args = TrainingArguments(
            output_dir=output_dir, seed=cfg.seed, use_cpu=True,
            num_train_epochs=cfg.epochs, learning_rate=cfg.learning_rate,
            lr_scheduler_type="cosine", warmup_steps=25, weight_decay=0.01,
            per_device_train_batch_size=cfg.batch_size, per_device_eval_batch_size=32,
            eval_strategy="epoch", save_strategy="epoch", save_only_model=True,
            logging_steps=10, report_to=[], disable_tqdm=True,
        )
        trainer = Trainer(
            model=model, args=args, train_dataset=train, eval_dataset=held_out,
            processing_class=tokenizer, compute_metrics=compute_metrics, callbacks=[clock],
        )
        trainer.train()
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print("RESULT " + json.dumps({
        "step_s": round(clock.median(), 5),
        "fit_s": round(time.perf_counter() - began, 3),
        "loss": round(float(losses[-1]), 5),
    }))


if __name__ == "__main__":
    main()
