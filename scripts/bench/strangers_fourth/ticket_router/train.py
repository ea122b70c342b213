"""Route support tickets to a team with a small DistilBERT."""
import argparse
import json
import random
import tempfile
import time

import numpy as np
from datasets import Dataset
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    DataCollatorWithPadding,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)

TEAMS = 10
WORDS = [f"term{i}" for i in range(2000)]


def tickets(n, seed):
    rng = random.Random(seed)
    topics = [rng.sample(WORDS, 25) for _ in range(TEAMS)]
    rows = {"text": [], "label": []}
    for _ in range(n):
        team = rng.randrange(TEAMS)
        words = rng.choices(WORDS, k=rng.randint(30, 48)) + rng.choices(topics[team], k=6)
        rng.shuffle(words)
        rows["text"].append(" ".join(words))
        rows["label"].append(team)
    return Dataset.from_dict(rows)


def make_tokenizer():
    vocabulary = {w: i for i, w in enumerate(["[PAD]", "[UNK]", *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]", model_max_length=128,
        model_input_names=["input_ids", "attention_mask"],
    )


def compute_metrics(prediction):
    return {"accuracy": float((np.argmax(prediction.predictions, axis=-1) == prediction.label_ids).mean())}


class StepTimes(TrainerCallback):
    def __init__(self):
        self.ends, self.losses = [], []

    def on_step_end(self, args, state, control, **kwargs):
        self.ends.append(time.perf_counter())

    def on_log(self, args, state, control, logs=None, **kwargs):
        if "loss" in logs:
            self.losses.append(float(logs["loss"]))


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--tickets", type=int, default=2600)
    ap.add_argument("--epochs", type=int, default=2)
    ap.add_argument("--batch", type=int, default=32)
    ap.add_argument("--lr", type=float, default=6e-4)
    ap.add_argument("--seed", type=int, default=404)
    args = ap.parse_args()
    set_seed(args.seed)

    tokenizer = make_tokenizer()
    data = tickets(args.tickets, args.seed).map(
        lambda rows: tokenizer(rows["text"], truncation=True), batched=True, remove_columns=["text"]
    )
    data = data.train_test_split(test_size=200, seed=args.seed)
    config = DistilBertConfig(
        vocab_size=len(tokenizer), dim=192, hidden_dim=576, n_layers=3, n_heads=6, max_position_embeddings=128,
        num_labels=TEAMS, pad_token_id=tokenizer.pad_token_id,
    )
    times = StepTimes()
    with tempfile.TemporaryDirectory() as out:
        trainer = Trainer(
            model=DistilBertForSequenceClassification(config),
            args=TrainingArguments(
                output_dir=out,
                num_train_epochs=args.epochs,
                per_device_train_batch_size=args.batch,
                per_device_eval_batch_size=100,
                learning_rate=args.lr,
                warmup_steps=15,
                eval_strategy="epoch",
                save_strategy="no",
                logging_steps=20,
                report_to="none",
                use_cpu=True,
                disable_tqdm=True,
                seed=args.seed,
            ),
            train_dataset=data["train"],
            eval_dataset=data["test"],
            data_collator=DataCollatorWithPadding(tokenizer),
            compute_metrics=compute_metrics,
            callbacks=[times],
        )
        start = time.perf_counter()
        trainer.train()
        fit_s = time.perf_counter() - start
    print("RESULT " + json.dumps({
        "step_s": (times.ends[-1] - times.ends[4]) / (len(times.ends) - 5),
        "fit_s": fit_s,
        "loss": sum(times.losses[-2:]) / 2,
    }), flush=True)


if __name__ == "__main__":
    main()
