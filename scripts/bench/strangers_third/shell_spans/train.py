"""Masked-token pre-training on shell sessions (intrusion detection)."""
import argparse
import json
import tempfile
import time

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForMaskedLM, Trainer, TrainerCallback, TrainingArguments, set_seed

PAD, CLS, SEP, MASK = 0, 1, 2, 3
VOCAB = 800


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--sessions", type=int, default=2560)
    p.add_argument("--length", type=int, default=64)
    p.add_argument("--batch", type=int, default=32)
    p.add_argument("--mask-prob", type=float, default=0.15)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=27)
    return p.parse_args()


class Sessions(Dataset):
    """Token ids of shell sessions: commands followed by arguments which go with them."""

    def __init__(self, n, length, seed):
        g = torch.Generator().manual_seed(seed)
        command = torch.randint(40, (n, length // 4), generator=g).repeat_interleave(4, 1)
        argument = torch.randint(4, (n, length), generator=g) + 4 * (torch.arange(length) % 4)
        self.ids = 10 + command * 16 + argument
        self.ids[:, 0], self.ids[:, -1] = CLS, SEP

    def __len__(self):
        return len(self.ids)

    def __getitem__(self, i):
        return self.ids[i]


class MaskingCollator:
    """BERT masking: of the chosen tokens 80% become [MASK], 10% another token, 10% stay."""

    def __init__(self, prob):
        self.prob = prob
        self.special = [PAD, CLS, SEP]

    def __call__(self, examples):
        input_ids = torch.stack(examples)
        labels = torch.full_like(input_ids, -100)
        for i in range(input_ids.size(0)):
            for j in range(input_ids.size(1)):
                if input_ids[i, j] in self.special:
                    continue
                if torch.rand(1) < self.prob:
                    labels[i, j] = input_ids[i, j]
                    dice = torch.rand(1)
                    if dice < 0.8:
                        input_ids[i, j] = MASK
                    elif dice < 0.9:
                        input_ids[i, j] = torch.randint(10, VOCAB, (1,)).item()
        return {"input_ids": input_ids, "labels": labels}


class Stopwatch(TrainerCallback):
    def __init__(self):
        self.stamps = []

    def on_step_end(self, args, state, control, **kwargs):
        self.stamps.append(time.perf_counter())


def main():
    args = get_args()
    set_seed(args.seed)
    config = BertConfig(
        vocab_size=VOCAB, hidden_size=48, num_hidden_layers=1, num_attention_heads=2, intermediate_size=192,
        max_position_embeddings=args.length,
    )
    watch = Stopwatch()
    training = TrainingArguments(
        output_dir=tempfile.mkdtemp(prefix="shell_"),
        per_device_train_batch_size=args.batch,
        num_train_epochs=1,
        learning_rate=args.lr,
        warmup_steps=10,
        logging_steps=10,
        save_strategy="no",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        remove_unused_columns=False,
        seed=args.seed,
    )
    trainer = Trainer(
        model=BertForMaskedLM(config), args=training, train_dataset=Sessions(args.sessions, args.length, args.seed),
        data_collator=MaskingCollator(args.mask_prob), callbacks=[watch],
    )
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
