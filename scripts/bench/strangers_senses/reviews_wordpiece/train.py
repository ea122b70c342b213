"""Rating prediction from product reviews with a small BERT (Hugging Face Trainer)."""
import json
import tempfile
import time
import unicodedata

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainerCallback, TrainingArguments, set_seed

SYLLABLES = ["ka", "lo", "mi", "ter", "son", "pra", "vel", "dun", "ish", "or", "fen", "gra", "tul", "bex", "na", "qui"]
MAX_LEN = 40


def write_reviews(n, seed=7):
    rng = np.random.default_rng(seed)
    words = ["".join(rng.choice(SYLLABLES, rng.integers(2, 6))) for _ in range(4000)]
    mood = rng.normal(0, 1, len(words))
    texts, stars = [], []
    for _ in range(n):
        ids = rng.integers(0, len(words), rng.integers(200, 560))
        texts.append(" ".join(words[i].capitalize() if i % 7 == 0 else words[i] for i in ids) + ".")
        stars.append(int(np.clip(2 + round(mood[ids[:24]].mean() * 5), 0, 4)))
    return texts, stars


def build_vocab():
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "."]
    letters = sorted(set("".join(SYLLABLES)))
    stems = letters + SYLLABLES + [a + b for a in SYLLABLES for b in SYLLABLES]
    stems = list(dict.fromkeys(stems))
    return {p: i for i, p in enumerate(pieces + stems + ["##" + s for s in stems])}


class WordPiece:
    def __init__(self, vocab):
        self.vocab = vocab

    def normalise(self, text):
        text = unicodedata.normalize("NFD", text.lower())
        text = "".join(ch for ch in text if unicodedata.category(ch) != "Mn")
        return "".join(f" {ch} " if unicodedata.category(ch).startswith("P") else ch for ch in text)

    def split_word(self, word):
        out, start = [], 0
        while start < len(word):
            end = len(word)
            while end > start:
                piece = ("##" if start else "") + word[start:end]
                if piece in self.vocab:
                    break
                end -= 1
            if end == start:
                return [self.vocab["[UNK]"]]
            out.append(self.vocab[piece])
            start = end
        return out

    def encode(self, text, max_len=MAX_LEN):
        ids = [self.vocab["[CLS]"]]
        for word in self.normalise(text).split():
            ids += self.split_word(word)
        ids = ids[:max_len - 1] + [self.vocab["[SEP]"]]
        return ids + [0] * (max_len - len(ids))


class Reviews(Dataset):
    def __init__(self, texts, stars, tokenizer):
        self.ids = torch.tensor([tokenizer.encode(t) for t in texts])
        self.stars = torch.tensor(stars)

    def __len__(self):
        return len(self.stars)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "attention_mask": (self.ids[i] != 0).long(), "labels": self.stars[i]}


class Clock(TrainerCallback):
    def __init__(self):
        self.stamps = []

    def on_step_end(self, args, state, control, **kwargs):
        self.stamps.append(time.perf_counter())


def main():
    set_seed(11)
    texts, stars = write_reviews(2400)
    vocab = build_vocab()
    config = BertConfig(vocab_size=len(vocab), hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                        intermediate_size=128, max_position_embeddings=MAX_LEN, num_labels=5)
    clock = Clock()
    start = time.perf_counter()
    dataset = Reviews(texts, stars, WordPiece(vocab))
    with tempfile.TemporaryDirectory() as tmp:
        args = TrainingArguments(output_dir=tmp, per_device_train_batch_size=32, num_train_epochs=1, learning_rate=5e-4,
                                 logging_steps=20, save_strategy="no", report_to=[], disable_tqdm=True, use_cpu=True,
                                 dataloader_drop_last=True)
        trainer = Trainer(model=BertForSequenceClassification(config), args=args, train_dataset=dataset,
                          callbacks=[clock])
        trainer.train()
    fit_s = time.perf_counter() - start
    losses = [row["loss"] for row in trainer.state.log_history if "loss" in row]
    print("RESULT " + json.dumps({
        "step_s": (clock.stamps[-1] - clock.stamps[9]) / (len(clock.stamps) - 10),
        "fit_s": fit_s,
        "loss": float(losses[-1]),
    }))


if __name__ == "__main__":
    main()
