"""Multi-label topic tagger for paper abstracts (word-level TextCNN)."""
import json
import logging
import statistics
import tempfile
import time
import warnings
from collections import Counter
from dataclasses import dataclass

import lightning as L
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler
from torchmetrics import MetricCollection
from torchmetrics.classification import MultilabelAUROC, MultilabelAveragePrecision

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
warnings.filterwarnings("ignore")


@dataclass
class Config:
    num_topics: int = 20
    train_abstracts: int = 8192
    val_abstracts: int = 1536
    max_words: int = 64
    vocab_size: int = 4000
    embed_dim: int = 64
    channels: int = 96
    kernels: tuple = (3, 5)
    batch_size: int = 64
    epochs: int = 2
    lr: float = 3e-3
    seed: int = 23


def make_abstracts(n, cfg, seed):
    """Draws topics per abstract, then words from the vocabularies of its topics."""
    rng = np.random.default_rng(seed)
    topics = rng.random((n, cfg.num_topics)) < 0.08
    topics[np.arange(n), rng.integers(cfg.num_topics, size=n)] = True
    common = np.array([f"w{i}" for i in range(2500)])
    texts = []
    for row in topics:
        own = np.flatnonzero(row)
        words = common[(rng.random(48) ** 3 * 2500).astype(int)].tolist()
        picks = rng.choice(own, size=12)
        words += [f"t{t}_{j}" for t, j in zip(picks, rng.integers(40, size=12))]
        rng.shuffle(words)
        texts.append(" ".join(words))
    return texts, torch.from_numpy(topics.astype(np.float32))


class Vocabulary:
    def __init__(self, texts, size):
        counts = Counter(word for text in texts for word in text.split())
        self.index = {word: i + 2 for i, (word, _) in enumerate(counts.most_common(size - 2))}

    def encode(self, texts, length):
        ids = np.zeros((len(texts), length), dtype=np.int64)
        for row, text in zip(ids, texts):
            tokens = [self.index.get(word, 1) for word in text.split()[:length]]
            row[:len(tokens)] = tokens
        return torch.from_numpy(ids)


class AbstractDataset(Dataset):
    def __init__(self, ids, topics):
        self.ids, self.topics = ids, topics

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, rows):
        return self.ids[rows], self.topics[rows]


class AbstractData(L.LightningDataModule):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg

    def setup(self, stage):
        cfg = self.cfg
        train_texts, train_topics = make_abstracts(cfg.train_abstracts, cfg, 1)
        val_texts, val_topics = make_abstracts(cfg.val_abstracts, cfg, 2)
        vocab = Vocabulary(train_texts, cfg.vocab_size)
        self.train = AbstractDataset(vocab.encode(train_texts, cfg.max_words), train_topics)
        self.val = AbstractDataset(vocab.encode(val_texts, cfg.max_words), val_topics)

    def train_dataloader(self):
        sampler = BatchSampler(RandomSampler(self.train), self.cfg.batch_size, drop_last=True)
        return DataLoader(self.train, sampler=sampler, batch_size=None)

    def val_dataloader(self):
        sampler = BatchSampler(SequentialSampler(self.val), 256, drop_last=False)
        return DataLoader(self.val, sampler=sampler, batch_size=None)


class TopicTagger(L.LightningModule):
    def __init__(self, cfg):
        super().__init__()
        self.cfg = cfg
        self.embed = nn.Embedding(cfg.vocab_size, cfg.embed_dim, padding_idx=0)
        self.convs = nn.ModuleList(nn.Conv1d(cfg.embed_dim, cfg.channels, k, padding=k // 2) for k in cfg.kernels)
        self.out = nn.Linear(cfg.channels * len(cfg.kernels), cfg.num_topics)
        scores = MetricCollection({"auroc": MultilabelAUROC(cfg.num_topics),
                                   "map": MultilabelAveragePrecision(cfg.num_topics)})
        self.train_scores = scores.clone(prefix="train_")
        self.val_scores = scores.clone(prefix="val_")
        self.step_ends, self.step_losses = [], []

    def forward(self, ids):
        x = self.embed(ids).transpose(1, 2)
        pooled = [F.relu(conv(x)).amax(dim=2) for conv in self.convs]
        return self.out(torch.cat(pooled, dim=1))

    def training_step(self, batch, batch_idx):
        ids, topics = batch
        logits = self(ids)
        loss = F.binary_cross_entropy_with_logits(logits, topics)
        self.train_scores.update(logits.detach().sigmoid(), topics.int())
        self.log_dict(self.train_scores.compute())
        self.log("train_loss", loss)
        return loss

    def on_train_batch_end(self, outputs, batch, batch_idx):
        self.step_losses.append(outputs["loss"].detach())
        self.step_ends.append(time.perf_counter())

    def on_train_epoch_end(self):
        self.train_scores.reset()

    def validation_step(self, batch, batch_idx):
        ids, topics = batch
        logits = self(ids)
        self.val_scores.update(logits.sigmoid(), topics.int())
        self.log("val_loss", F.binary_cross_entropy_with_logits(logits, topics), batch_size=len(ids))

    def on_validation_epoch_end(self):
        self.log_dict(self.val_scores.compute())
        self.val_scores.reset()

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=self.cfg.lr, fused=True)


def main():
    start = time.perf_counter()
    cfg = Config()
    L.seed_everything(cfg.seed, verbose=False)
    model = TopicTagger(cfg)
    with tempfile.TemporaryDirectory() as tmp:
        trainer = L.Trainer(
            accelerator="cpu", max_epochs=cfg.epochs, logger=CSVLogger(tmp), log_every_n_steps=50,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )
        trainer.fit(model, datamodule=AbstractData(cfg))
        print({k: round(float(v), 4) for k, v in trainer.callback_metrics.items()})
    steps = [b - a for a, b in zip(model.step_ends, model.step_ends[1:])]
    print("RESULT " + json.dumps({
        "step_s": round(statistics.median(steps), 5),
        "fit_s": round(time.perf_counter() - start, 2),
        "loss": round(float(torch.stack(model.step_losses[-10:]).mean()), 5),
    }))


if __name__ == "__main__":
    main()
