"""Tag component, fault and action mentions in aircraft maintenance reports with a small BERT."""
import json
import random
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForTokenClassification,
    DataCollatorForTokenClassification,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

TAGS = ["O", "B-COMP", "I-COMP", "B-FAULT", "I-FAULT", "B-ACT", "I-ACT"]
TAG_IDS = {tag: i for i, tag in enumerate(TAGS)}


@dataclass
class Config:
    seed: int = 5
    num_train: int = 3200
    num_eval: int = 192
    max_length: int = 40
    hidden_size: int = 128
    layers: int = 2
    batch_size: int = 16
    learning_rate: float = 4e-4
    max_steps: int = 200


def write_corpus(folder, cfg):
    rng = random.Random(cfg.seed)
    stem = lambda: "".join(rng.choice("bcdfghklmnprstv") + rng.choice("aeiou") for _ in range(rng.randint(2, 4)))
    filler = [stem() for _ in range(900)]
    lexicon = {kind: [stem() for _ in range(120)] for kind in ("COMP", "FAULT", "ACT")}
    for name, size in (("train", cfg.num_train), ("eval", cfg.num_eval)):
        rows = []
        for number in range(size):
            report = f"{name[0].upper()}{2019 + number % 6}-{number:06d}"
            for _ in range(rng.randint(3, 5)):
                rows += [(report, rng.choice(filler), "O") for _ in range(rng.randint(1, 4))]
                kind = rng.choice(list(lexicon))
                rows.append((report, rng.choice(lexicon[kind]), f"B-{kind}"))
                rows += [(report, rng.choice(lexicon[kind]), f"I-{kind}") for _ in range(rng.randint(0, 2))]
        frame = pd.DataFrame(rows, columns=["report_id", "word", "tag"])
        frame.to_csv(folder / f"{name}.csv", index=False)


def build_tokenizer(words, max_length):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    table = {token: i for i, token in enumerate(special + sorted(set(words)))}
    backend = Tokenizer(models.WordLevel(table, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    backend.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        special_tokens=[("[CLS]", table["[CLS]"]), ("[SEP]", table["[SEP]"])],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]",
        cls_token="[CLS]", sep_token="[SEP]", model_max_length=max_length,
    )


class ReportDataset(Dataset):
    """One item per report: token ids and aligned tag ids."""

    def __init__(self, path, tokenizer, max_length):
        self.table = pd.read_csv(path)
        self.report_ids = self.table["report_id"].unique().tolist()
        self.tokenizer = tokenizer
        self.max_length = max_length

    def __len__(self):
        return len(self.report_ids)

    def __getitem__(self, index):
        rows = self.table[self.table["report_id"] == self.report_ids[index]]
        words, tags = rows["word"].tolist(), rows["tag"].tolist()
        encoded = self.tokenizer(words, is_split_into_words=True, truncation=True, max_length=self.max_length)
        labels = [-100 if w is None else TAG_IDS[tags[w]] for w in encoded.word_ids()]
        return {
            "input_ids": encoded["input_ids"],
            "attention_mask": encoded["attention_mask"],
            "labels": labels,
        }


def keep_argmax(logits, labels):
    return logits.argmax(dim=-1)


def compute_metrics(prediction):
    predicted, gold = prediction.predictions, prediction.label_ids
    scored = gold != -100
    entity = scored & (gold != 0)
    guessed = scored & (predicted != 0)
    hits = float(((predicted == gold) & entity).sum())
    precision, recall = hits / max(guessed.sum(), 1), hits / max(entity.sum(), 1)
    return {
        "token_accuracy": float((predicted == gold)[scored].mean()),
        "entity_f1": float(2 * precision * recall / max(precision + recall, 1e-9)),
    }


class StepClock(TrainerCallback):
    def __init__(self):
        self.stamps = []

    def on_step_end(self, args, state, control, **kwargs):
        self.stamps.append(time.perf_counter())


def main():
    began = time.perf_counter()
    cfg = Config()
    set_seed(cfg.seed)
    clock = StepClock()
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        write_corpus(folder, cfg)
        words = pd.read_csv(folder / "train.csv", usecols=["word"])["word"].tolist()
        tokenizer = build_tokenizer(words, cfg.max_length)
        train = ReportDataset(folder / "train.csv", tokenizer, cfg.max_length)
        held_out = ReportDataset(folder / "eval.csv", tokenizer, cfg.max_length)
        model = BertForTokenClassification(BertConfig(
            vocab_size=len(tokenizer), hidden_size=cfg.hidden_size, num_hidden_layers=cfg.layers,
            num_attention_heads=4, intermediate_size=4 * cfg.hidden_size,
            max_position_embeddings=64, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
            pad_token_id=tokenizer.pad_token_id, num_labels=len(TAGS),
            id2label=dict(enumerate(TAGS)), label2id=TAG_IDS,
        ))
        args = TrainingArguments(
            output_dir=str(folder / "runs"), seed=cfg.seed, use_cpu=True, max_steps=cfg.max_steps,
            learning_rate=cfg.learning_rate, warmup_steps=20, weight_decay=0.01,
            per_device_train_batch_size=cfg.batch_size, per_device_eval_batch_size=32,
            eval_strategy="steps", eval_steps=100, save_strategy="no",
            logging_steps=10, report_to=[], disable_tqdm=True,
        )
        trainer = Trainer(
            model=model, args=args, train_dataset=train, eval_dataset=held_out,
            data_collator=DataCollatorForTokenClassification(tokenizer),
            compute_metrics=compute_metrics, preprocess_logits_for_metrics=keep_argmax,
            callbacks=[clock],
        )
        trainer.train()
    gaps = [b - a for a, b in zip(clock.stamps, clock.stamps[1:])]
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print("RESULT " + json.dumps({
        "step_s": round(statistics.median(gaps), 5),
        "fit_s": round(time.perf_counter() - began, 3),
        "loss": round(float(losses[-1]), 5),
    }))


if __name__ == "__main__":
    main()
