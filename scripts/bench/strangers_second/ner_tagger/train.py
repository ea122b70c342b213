# BiLSTM tagger for named entities, IO scheme, synthetic newswire.
import json
import random
import sys
import time
from collections import Counter

import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader, Dataset, Sampler

TAGS = ["O", "PER", "LOC", "ORG", "MISC"]
PAD_WORD, UNK, PAD_TAG = 0, 1, -1

hp = dict(
    sentences=4000, dev=400, epochs=2, batch=48, emb=96, hidden=128, lr=2e-3,
    clip=5.0, min_count=1, seed=77, report=20,
)


def newswire(n, seed):
    """Filler words and entity words of some classes with ambiguous contexts."""
    rnd = random.Random(seed)
    filler = [f"w{i}" for i in range(1500)]
    names = {t: [f"{t.lower()}{i}" for i in range(220)] for t in TAGS[1:]}
    shared = [f"amb{i}" for i in range(60)]
    corpus = []
    for _ in range(n):
        words, tags = [], []
        target = rnd.randint(18, 46)
        while len(words) < target:
            if rnd.random() < 0.18:
                tag = rnd.choice(TAGS[1:])
                words.append("cue_" + tag if rnd.random() < 0.6 else rnd.choice(filler))
                tags.append("O")
                for _ in range(rnd.randint(1, 3)):
                    words.append(rnd.choice(shared) if rnd.random() < 0.3 else rnd.choice(names[tag]))
                    tags.append(tag)
            else:
                words.append(filler[int(rnd.paretovariate(0.9)) % len(filler)])
                tags.append("O")
        corpus.append((words, tags))
    return corpus


class Vocab:
    def __init__(self, corpus, min_count):
        counts = Counter(w for words, _ in corpus for w in words)
        kept = sorted(w for w, c in counts.items() if c >= min_count)
        self.index = {w: i + 2 for i, w in enumerate(kept)}

    def __len__(self):
        return len(self.index) + 2

    def ids(self, words):
        return torch.tensor([self.index.get(w, UNK) for w in words])


class TagSet(Dataset):
    def __init__(self, corpus, vocab):
        tag_id = {t: i for i, t in enumerate(TAGS)}
        self.rows = [(vocab.ids(w), torch.tensor([tag_id[t] for t in tags])) for w, tags in corpus]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        return self.rows[i]


class Buckets(Sampler):
    """Batches of sentences of like length, in random order."""

    def __init__(self, dataset, batch):
        order = sorted(range(len(dataset)), key=lambda i: len(dataset.rows[i][0]))
        self.batches = [order[i:i + batch] for i in range(0, len(order), batch)]

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        for b in torch.randperm(len(self.batches)).tolist():
            yield self.batches[b]


def collate(rows):
    words, tags = zip(*rows)
    return pad_sequence(words, True, PAD_WORD), pad_sequence(tags, True, PAD_TAG)


class Tagger(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, hp["emb"], padding_idx=PAD_WORD)
        self.lstm = nn.LSTM(hp["emb"], hp["hidden"], batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(0.2)
        self.out = nn.Linear(2 * hp["hidden"], len(TAGS))

    def forward(self, words):
        h, _ = self.lstm(self.drop(self.emb(words)))
        return self.out(self.drop(h))


class EntityScore:
    def __init__(self):
        self.reset()

    def reset(self):
        self.tp, self.fp, self.fn = [0] * len(TAGS), [0] * len(TAGS), [0] * len(TAGS)

    def update(self, pred, gold):
        for pred_row, gold_row in zip(pred, gold):
            for p, g in zip(pred_row, gold_row):
                if g == PAD_TAG:
                    continue
                if p == g:
                    self.tp[g] += 1
                else:
                    self.fp[p] += 1
                    self.fn[g] += 1

    def f1(self):
        tp, fp, fn = (sum(x[1:]) for x in (self.tp, self.fp, self.fn))
        return 2 * tp / max(1, 2 * tp + fp + fn)


def evaluate(model, loader):
    model.eval()
    score = EntityScore()
    with torch.inference_mode():
        for words, tags in loader:
            score.update(model(words).argmax(-1), tags)
    model.train()
    return score.f1()


def main():
    torch.manual_seed(hp["seed"])
    train_corpus = newswire(hp["sentences"], hp["seed"])
    dev_corpus = newswire(hp["dev"], hp["seed"] + 1)
    vocab = Vocab(train_corpus, hp["min_count"])
    train_set, dev_set = TagSet(train_corpus, vocab), TagSet(dev_corpus, vocab)
    train_loader = DataLoader(train_set, batch_sampler=Buckets(train_set, hp["batch"]), collate_fn=collate)
    dev_loader = DataLoader(dev_set, batch_size=128, collate_fn=collate)
    model = Tagger(len(vocab))
    criterion = nn.CrossEntropyLoss(ignore_index=PAD_TAG)
    optimizer = torch.optim.Adam(model.parameters(), lr=hp["lr"], fused=True)
    score = EntityScore()

    durations, losses = [], []
    t_start = time.perf_counter()
    for epoch in range(hp["epochs"]):
        score.reset()
        tick = time.perf_counter()
        for words, tags in train_loader:
            logits = model(words)
            loss = criterion(logits.flatten(0, 1), tags.flatten())
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), hp["clip"])
            optimizer.step()
            losses.append(loss.item())
            score.update(logits.argmax(-1), tags)
            if len(losses) % hp["report"] == 0:
                print(f"epoch {epoch} step {len(losses)} loss {losses[-1]:.4f} train F1 {score.f1():.4f}")
                sys.stdout.flush()
            now = time.perf_counter()
            durations.append(now - tick)
            tick = now
        print(f"epoch {epoch} done, dev F1 {evaluate(model, dev_loader):.4f}")
    fit_s = time.perf_counter() - t_start
    print("RESULT " + json.dumps({
        "step_s": sum(durations[10:]) / len(durations[10:]),
        "fit_s": fit_s,
        "loss": sum(losses[-20:]) / 20,
    }))


if __name__ == "__main__":
    main()
