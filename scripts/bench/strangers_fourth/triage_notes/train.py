"""Fine-tune an encoder to sort emergency department notes into urgency levels."""
import argparse
import json
import random
import tempfile
import time

import torch
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DataCollatorWithPadding,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

LEVELS = ["immediate", "urgent", "delayed", "minor"]
SIGNS = {
    "immediate": "unresponsive seizure arrest cyanotic haemorrhage".split(),
    "urgent": "chest pain dyspnoea stroke sepsis".split(),
    "delayed": "fracture fever vomiting laceration dehydrated".split(),
    "minor": "sprain rash refill cough sunburn".split(),
}
FILLER = [f"w{i}" for i in range(400)]


def write_notes(n, rng):
    texts, labels = [], []
    for _ in range(n):
        label = rng.randrange(len(LEVELS))
        # most notes are a line or two, a few are the transcript of a whole call
        length = rng.randint(150, 240) if rng.random() < 0.02 else rng.randint(8, 32)
        words = rng.choices(FILLER, k=length)
        for sign in rng.choices(SIGNS[LEVELS[label]], k=5):
            words[rng.randrange(min(length, 30))] = sign
        texts.append(" ".join(words))
        labels.append(label)
    return Dataset.from_dict({"text": texts, "label": labels})


def build_tokenizer():
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"] + FILLER + sum(SIGNS.values(), [])
    tok = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="[UNK]"))
    tok.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=tok, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        model_max_length=256,
    )


class Stamps(TrainerCallback):
    def __init__(self):
        self.at, self.losses = [], []

    def on_step_end(self, args, state, control, **kwargs):
        self.at.append(time.perf_counter())

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            self.losses.append(float(logs["loss"]))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--notes", type=int, default=2000)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--max_steps", type=int, default=60)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=112)
    args = parser.parse_args()
    set_seed(args.seed)

    tokenizer = build_tokenizer()
    notes = write_notes(args.notes, random.Random(args.seed))

    def preprocess(batch):
        return tokenizer(batch["text"], padding=True, truncation=True)

    encoded = notes.map(preprocess, batched=True, remove_columns=["text"])
    config = BertConfig(
        vocab_size=len(tokenizer), hidden_size=args.hidden, num_hidden_layers=args.layers, num_attention_heads=4,
        intermediate_size=4 * args.hidden, max_position_embeddings=256, num_labels=len(LEVELS),
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, pad_token_id=tokenizer.pad_token_id,
    )
    stamps = Stamps()
    with tempfile.TemporaryDirectory() as out:
        training_args = TrainingArguments(
            output_dir=out,
            max_steps=args.max_steps,
            per_device_train_batch_size=args.batch,
            learning_rate=args.lr,
            warmup_steps=10,
            logging_steps=10,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
            seed=args.seed,
        )
        trainer = Trainer(
            model=BertForSequenceClassification(config),
            args=training_args,
            train_dataset=encoded,
            data_collator=DataCollatorWithPadding(tokenizer),
            callbacks=[stamps],
        )
        begin = time.perf_counter()
        trainer.train()
        fit_s = time.perf_counter() - begin
    print("RESULT " + json.dumps({
        "step_s": (stamps.at[-1] - stamps.at[2]) / (len(stamps.at) - 3),
        "fit_s": fit_s,
        "loss": sum(stamps.losses[-2:]) / 2,
    }), flush=True)


if __name__ == "__main__":
    main()
