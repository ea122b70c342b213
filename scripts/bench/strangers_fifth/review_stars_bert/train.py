"""Fine-tune a small BERT on product reviews (1-5 stars) with the Hugging Face Trainer."""
import json
import tempfile
import time
from dataclasses import dataclass

import numpy as np
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tokenizers.processors import TemplateProcessing
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
    Trainer,
    TrainerCallback,
    TrainingArguments,
    set_seed,
)


@dataclass
class Config:
    reviews: int = 3600
    vocab: int = 2500
    max_length: int = 160
    batch_size: int = 16
    epochs: int = 1
    lr: float = 5e-4
    seed: int = 61


def synth_reviews(cfg):
    rng = np.random.default_rng(cfg.seed)
    words = [f"word{i}" for i in range(cfg.vocab)]
    tone = rng.integers(0, 5, cfg.vocab)
    by_tone = [np.flatnonzero(tone == k) for k in range(5)]
    texts, stars = [], []
    for _ in range(cfg.reviews):
        star = int(rng.integers(5))
        n = int(np.clip(rng.lognormal(3.0, 0.6), 5, cfg.max_length - 2))
        ids = rng.integers(0, cfg.vocab, n)
        hot = rng.random(n) < 0.35
        ids[hot] = rng.choice(by_tone[star], int(hot.sum()))
        texts.append(" ".join(words[i] for i in ids))
        stars.append(star)
    return words, texts, stars


def build_tokenizer(words):
    vocab = {t: i for i, t in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]"] + words)}
    tok = Tokenizer(WordLevel(vocab, unk_token="[UNK]"))
    tok.pre_tokenizer = Whitespace()
    tok.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return PreTrainedTokenizerFast(tokenizer_object=tok, pad_token="[PAD]", unk_token="[UNK]",
                                   cls_token="[CLS]", sep_token="[SEP]")


class ReviewDataset(Dataset):
    def __init__(self, texts, stars, tokenizer, max_length):
        self.enc = tokenizer(texts, truncation=True, padding="max_length", max_length=max_length)
        self.stars = stars

    def __len__(self):
        return len(self.stars)

    def __getitem__(self, i):
        return {"input_ids": self.enc["input_ids"][i],
                "attention_mask": self.enc["attention_mask"][i],
                "labels": self.stars[i]}


class Timer(TrainerCallback):
    def __init__(self):
        self.times = []

    def on_epoch_begin(self, args, state, control, **kwargs):
        self.t = time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        now = time.perf_counter()
        self.times.append(now - self.t)
        self.t = now


def compute_metrics(pred):
    hat = pred.predictions.argmax(-1)
    return {"accuracy": float((hat == pred.label_ids).mean()),
            "mae": float(np.abs(hat - pred.label_ids).mean())}


def main():
    t_main = time.perf_counter()
    cfg = Config()
    set_seed(cfg.seed)
    words, texts, stars = synth_reviews(cfg)
    tokenizer = build_tokenizer(words)
    cut = int(0.9 * cfg.reviews)
    train = ReviewDataset(texts[:cut], stars[:cut], tokenizer, cfg.max_length)
    test = ReviewDataset(texts[cut:], stars[cut:], tokenizer, cfg.max_length)
    model = BertForSequenceClassification(BertConfig(
        vocab_size=len(tokenizer), hidden_size=128, num_hidden_layers=2, num_attention_heads=4,
        intermediate_size=512, max_position_embeddings=256, num_labels=5))
    args = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="reviews_"),
        per_device_train_batch_size=cfg.batch_size,
        per_device_eval_batch_size=64,
        num_train_epochs=cfg.epochs,
        learning_rate=cfg.lr,
        warmup_steps=20,
        weight_decay=0.01,
        logging_steps=10,
        eval_strategy="epoch",
        save_strategy="epoch",
        dataloader_drop_last=True,
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        seed=cfg.seed,
    )
    timer = Timer()
    trainer = Trainer(model=model, args=args, train_dataset=train, eval_dataset=test,
                      processing_class=tokenizer, compute_metrics=compute_metrics, callbacks=[timer])
    trainer.train()
    fit_s = time.perf_counter() - t_main
    logged = [h["loss"] for h in trainer.state.log_history if "loss" in h]
    print("RESULT " + json.dumps({"step_s": float(np.median(timer.times)), "fit_s": fit_s,
                                  "loss": float(logged[-1])}), flush=True)


if __name__ == "__main__":
    main()
