"""Parse postal addresses into fields: BERT token classification with the Hugging Face Trainer."""
import argparse
import json
import tempfile
import time

import numpy as np
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
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

FIELDS = ["name", "street", "number", "unit", "postcode", "city", "country"]


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--addresses", type=int, default=11000)
    p.add_argument("--batch-size", type=int, default=32)
    p.add_argument("--epochs", type=float, default=1)
    p.add_argument("--hidden", type=int, default=192)
    p.add_argument("--layers", type=int, default=3)
    p.add_argument("--lr", type=float, default=3e-4)
    p.add_argument("--seed", type=int, default=73)
    return p.parse_args()


def make_addresses(args):
    rng = np.random.default_rng(args.seed)
    lexicon = {f: [f"{f[:2]}{i}" for i in range(400)] for f in FIELDS}
    shared = [f"w{i}" for i in range(300)]
    span = {"name": 3, "street": 3, "number": 1, "unit": 2, "postcode": 2, "city": 2, "country": 1}
    orders = [["name", "number", "street", "unit", "city", "postcode", "country"],
              ["name", "street", "number", "unit", "postcode", "city", "country"],
              ["unit", "number", "street", "city", "country", "postcode", "name"]]
    rows = []
    for _ in range(args.addresses):
        words, tags = [], []
        for field in orders[int(rng.integers(3))]:
            if field in ("unit", "country") and rng.random() < 0.3:
                continue
            for _ in range(int(rng.integers(1, span[field] + 1))):
                source = shared if rng.random() < 0.3 else lexicon[field]
                words.append(source[int(rng.integers(len(source)))])
                tags.append(FIELDS.index(field))
        rows.append((words, tags))
    vocab = [w for f in FIELDS for w in lexicon[f]] + shared
    return rows, vocab


def make_tokenizer(words):
    vocab = {t: i for i, t in enumerate(["[PAD]", "[UNK]"] + words)}
    tok = Tokenizer(WordLevel(vocab, unk_token="[UNK]"))
    tok.pre_tokenizer = WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tok, pad_token="[PAD]", unk_token="[UNK]",
                                   model_max_length=64)


class AddressDataset(Dataset):
    def __init__(self, rows, tokenizer):
        enc = tokenizer([w for w, _ in rows], is_split_into_words=True, truncation=True)
        self.items = [{"input_ids": ids, "attention_mask": mask, "labels": tags}
                      for ids, mask, (_, tags) in zip(enc["input_ids"], enc["attention_mask"], rows)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return dict(self.items[i])


def token_accuracy(pred):
    keep = pred.label_ids != -100
    return {"token_accuracy": float((pred.predictions.argmax(-1) == pred.label_ids)[keep].mean())}


class StepTimer(TrainerCallback):
    def __init__(self):
        self.times = []

    def on_epoch_begin(self, args, state, control, **kwargs):
        self.t = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        now = time.perf_counter()
        self.times.append(now - self.t)
        self.t = now


def main():
    t0 = time.perf_counter()
    cli = parse_args()
    set_seed(cli.seed)
    rows, words = make_addresses(cli)
    tokenizer = make_tokenizer(words)
    cut = int(0.92 * len(rows))
    train, valid = AddressDataset(rows[:cut], tokenizer), AddressDataset(rows[cut:], tokenizer)
    model = BertForTokenClassification(BertConfig(
        vocab_size=len(tokenizer), hidden_size=cli.hidden, num_hidden_layers=cli.layers,
        num_attention_heads=6, intermediate_size=4 * cli.hidden, max_position_embeddings=64,
        num_labels=len(FIELDS), id2label=dict(enumerate(FIELDS))))
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="address_"),
        num_train_epochs=cli.epochs,
        per_device_train_batch_size=cli.batch_size,
        per_device_eval_batch_size=128,
        learning_rate=cli.lr,
        warmup_steps=25,
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="epoch",
        save_total_limit=1,
        dataloader_drop_last=True,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=cli.seed,
    )
    timer = StepTimer()
    trainer = Trainer(model=model, args=args, train_dataset=train, eval_dataset=valid,
                      data_collator=DataCollatorForTokenClassification(tokenizer),
                      compute_metrics=token_accuracy, callbacks=[timer])
    trainer.train()
    fit_s = time.perf_counter() - t0
    losses = [h["loss"] for h in trainer.state.log_history if "loss" in h]
    print("RESULT " + json.dumps({"step_s": float(np.median(timer.times)), "fit_s": fit_s,
                                  "loss": float(losses[-1])}), flush=True)


if __name__ == "__main__":
    main()
