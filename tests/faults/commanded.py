"""Scripts for the corpus that know nothing of trainperf: each is a process of its own."""

import os
import subprocess
import sys
from pathlib import Path


LONGEST_S = 120

BERT = """
import random, torch
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments
from transformers import DataCollatorWithPadding, PreTrainedTokenizerFast
from tokenizers import Tokenizer, models

random.seed(0)
words = {"[PAD]": 0, "[UNK]": 1} | {f"w{number}": number for number in range(2, 500)}
tokenizer = PreTrainedTokenizerFast(
    tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="[UNK]")), pad_token="[PAD]"
)
tokenizer.padding_side = "right"

def rows(number, least, most):
    lengths = [random.randint(least, most) for _ in range(number)]
    return [
        {"input_ids": random.choices(range(2, 500), k=length), "labels": length % 2}
        for length in lengths
    ]

model = BertForSequenceClassification(
    BertConfig(
        vocab_size=500, hidden_size=64, num_hidden_layers=4, num_attention_heads=4,
        intermediate_size=256, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )
)

def train(dataset, collator, **options):
    settings = {
        "per_device_train_batch_size": 8, "num_train_epochs": 1, "save_strategy": "no",
        "report_to": "none", "use_cpu": True, "disable_tqdm": True, "logging_steps": 50,
    }
    arguments = TrainingArguments("out", **(settings | options))
    Trainer(model, arguments, train_dataset=dataset, data_collator=collator).train()
"""
"""A small BERT, rows of random words, and a Trainer for them."""


def trained(out: Path, source: str) -> None:
    """Run *source* with `trainperf run` on one thread; leaves its run below *out*.

    Raises:
        subprocess.CalledProcessError: It failed.
    """
    out.mkdir(parents=True, exist_ok=True)
    (out / "train.py").write_text(source, encoding="utf-8")
    subprocess.run(
        [sys.executable, "-m", "trainperf", "run", "--out", "runs", "train.py"],
        cwd=out,
        env={**os.environ, "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"},
        check=True,
        timeout=LONGEST_S,
        capture_output=True,
    )


def changed(source: str, *, fixed: bool, change: tuple[str, str]) -> str:
    """The script, or *fixed*, with its one change."""
    before, after = change
    if before not in source:
        raise ValueError(f"{before!r} is not in the script: its twin would be the same")
    return source.replace(before, after) if fixed else source
