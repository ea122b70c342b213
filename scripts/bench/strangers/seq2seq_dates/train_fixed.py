"""GRU encoder-decoder with additive attention: free-form dates to ISO dates."""
import datetime
import json
import random
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

SEED = 11
HID = 96
EMB = 64
BATCH = 16
STEPS = 250
SRC_LEN = 44
FORMATS = [
    "%A, %d of %B in the year %Y",
    "on the %dth day of %B, anno %Y",
    "%B %d %Y (a %A as it was)",
    "%d/%m/%Y which fell on a %A",
]


def make_pairs(n):
    rng = random.Random(SEED)
    base = datetime.date(1950, 1, 1)
    pairs = []
    for _ in range(n):
        d = base + datetime.timedelta(days=rng.randrange(36_000))
        pairs.append((d.strftime(rng.choice(FORMATS)).lower()[:SRC_LEN], d.isoformat() + " " + d.strftime("%j")))
    return pairs


class Vocab:
    def __init__(self, texts):
        self.chars = ["<pad>", "<s>", "</s>"] + sorted({c for t in texts for c in t})
        self.index = {c: i for i, c in enumerate(self.chars)}

    def encode(self, text):
        return [self.index[c] for c in text]

    def __len__(self):
        return len(self.chars)


class AdditiveAttention(nn.Module):
    def __init__(self, hid):
        super().__init__()
        self.query = nn.Linear(hid, hid)
        self.key = nn.Linear(2 * hid, hid, bias=False)
        self.score = nn.Linear(hid, 1, bias=False)

    def forward(self, state, memory, keys, mask):
        energy = torch.tanh(self.query(state).unsqueeze(1) + keys)
        weights = self.score(energy).squeeze(-1).masked_fill(mask, -1e9).softmax(-1)
        return torch.bmm(weights.unsqueeze(1), memory).squeeze(1)


class Seq2Seq(nn.Module):
    def __init__(self, n_src, n_tgt):
        super().__init__()
        self.src_emb = nn.Embedding(n_src, EMB, padding_idx=0)
        self.tgt_emb = nn.Embedding(n_tgt, EMB, padding_idx=0)
        self.encoder = nn.GRU(EMB, HID, batch_first=True, bidirectional=True)
        self.bridge = nn.Linear(2 * HID, HID)
        self.attention = AdditiveAttention(HID)
        self.cell = nn.GRUCell(EMB + 2 * HID, HID)
        self.out = nn.Linear(HID, n_tgt)

    def forward(self, src, tgt_in):
        mask = src == 0
        memory, last = self.encoder(self.src_emb(src))
        state = torch.tanh(self.bridge(torch.cat([last[0], last[1]], dim=-1)))
        emb = self.tgt_emb(tgt_in)
        keys = self.attention.key(memory)
        states = []
        for t in range(tgt_in.size(1)):
            context = self.attention(state, memory, keys, mask)
            state = self.cell(torch.cat([emb[:, t], context], dim=-1), state)
            states.append(state)
        return self.out(torch.stack(states, dim=1))


def pad(rows):
    width = max(map(len, rows))
    return torch.tensor([r + [0] * (width - len(r)) for r in rows])


def main():
    torch.manual_seed(SEED)
    pairs = make_pairs(6000)
    src_vocab = Vocab([p[0] for p in pairs])
    tgt_vocab = Vocab([p[1] for p in pairs])
    src = pad([src_vocab.encode(p[0]) for p in pairs])
    tgt = pad([[1] + tgt_vocab.encode(p[1]) + [2] for p in pairs])

    model = Seq2Seq(len(src_vocab), len(tgt_vocab))
    opt = torch.optim.Adam(model.parameters(), lr=2e-3)
    gen = torch.Generator().manual_seed(SEED)

    losses = []
    start = time.perf_counter()
    for step in range(1, STEPS + 1):
        idx = torch.randint(len(src), (BATCH,), generator=gen)
        s, t = src[idx], tgt[idx]
        logits = model(s, t[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), t[:, 1:].flatten(), ignore_index=0)
        opt.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        losses.append(loss.item())
        if step == 20:
            t20 = time.perf_counter()
        if step % 50 == 0:
            print(f"step {step} loss {sum(losses[-50:]) / 50:.4f}")
    end = time.perf_counter()
    print("RESULT " + json.dumps({
        "step_s": (end - t20) / (STEPS - 20),
        "fit_s": end - start,
        "loss": sum(losses[-20:]) / 20,
    }))


if __name__ == "__main__":
    main()
