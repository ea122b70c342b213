"""Instruction tuning of a small GPT: the loss is taken on the answers only, prompts are labelled -100."""
import argparse
import json
import tempfile
import time

import torch
import torch.nn.functional as F
from torch.utils.data import Dataset
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainerCallback, TrainingArguments, set_seed

IGNORE = -100


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--pairs", type=int, default=640)
    p.add_argument("--prompt", type=int, default=96)
    p.add_argument("--answer", type=int, default=8)
    p.add_argument("--vocab", type=int, default=6000)
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=31)
    return p.parse_args()


class Pairs(Dataset):
    """A prompt names a topic somewhere; the answer is a phrase of this topic."""

    def __init__(self, n, prompt, answer, vocab, seed):
        g = torch.Generator().manual_seed(seed)
        topic = torch.randint(20, (n, 1), generator=g)
        question = torch.randint(500, vocab, (n, prompt), generator=g)
        question.scatter_(1, torch.randint(prompt, (n, 4), generator=g), topic.expand(-1, 4).contiguous())
        reply = 20 + topic * answer + torch.arange(answer)
        self.ids = torch.cat([question, reply], 1)
        self.labels = self.ids.clone()
        self.labels[:, :prompt] = IGNORE

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return {"input_ids": self.ids[i], "labels": self.labels[i]}


class AnswerLM(GPT2LMHeadModel):
    def forward(self, input_ids, labels=None):
        hidden = self.transformer(input_ids)[0]
        logits = self.lm_head(hidden[:, :-1])
        target = labels[:, 1:]
        loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=IGNORE)
        return {"loss": loss}


class Stopwatch(TrainerCallback):
    def __init__(self):
        self.stamps = []

    def on_step_end(self, args, state, control, **kwargs):
        self.stamps.append(time.perf_counter())


def main():
    args = get_args()
    set_seed(args.seed)
    dataset = Pairs(args.pairs, args.prompt, args.answer, args.vocab, args.seed)
    config = GPT2Config(
        vocab_size=args.vocab, n_positions=args.prompt + args.answer, n_embd=128, n_layer=2, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False, bos_token_id=0, eos_token_id=0,
    )
    watch = Stopwatch()
    training = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="qa_"),
        per_device_train_batch_size=args.batch,
        num_train_epochs=1,
        learning_rate=args.lr,
        lr_scheduler_type="cosine",
        warmup_steps=8,
        logging_steps=10,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=args.seed,
    )
    trainer = Trainer(model=AnswerLM(config), args=training, train_dataset=dataset, callbacks=[watch])
    start = time.perf_counter()
    trainer.train()
    fit_s = time.perf_counter() - start
    losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    print("RESULT " + json.dumps({
        "step_s": (watch.stamps[-1] - watch.stamps[9]) / (len(watch.stamps) - 10),
        "fit_s": fit_s,
        "loss": float(losses[-1]),
    }), flush=True)


if __name__ == "__main__":
    main()
