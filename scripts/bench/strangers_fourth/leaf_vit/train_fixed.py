"""Leaf diseases with a ViT trained from scratch (Trainer). Effective batch: 32 images."""
import argparse
import json
import tempfile
import time

import torch
import torch.nn.functional as F
from torch.utils.data import Dataset
from transformers import (
    Trainer,
    TrainerCallback,
    TrainingArguments,
    ViTConfig,
    ViTForImageClassification,
    set_seed,
)

DISEASES = ["healthy", "rust", "mildew", "blight", "mosaic"]


class LeafImages(Dataset):
    def __init__(self, n, size, seed):
        g = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(len(DISEASES), (n,), generator=g)
        tint = torch.tensor([[0, 0, 0], [0.5, 0.1, -0.2], [0.3, 0.3, 0.4], [-0.3, -0.4, -0.2], [0.2, 0.3, -0.3]])
        grain = torch.tensor([8, 8, 16, 4, 16])
        spots = torch.stack([
            F.interpolate(torch.rand(1, 1, int(k), int(k), generator=g), size=(size, size))[0] > 0.65
            for k in grain[self.labels]
        ])
        leaf = 0.4 + 0.2 * torch.randn(n, 3, 1, 1, generator=g)
        self.pixels = leaf + spots * tint[self.labels][:, :, None, None] + 0.1 * torch.randn(n, 3, size, size, generator=g)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, i):
        return {"pixel_values": self.pixels[i], "labels": self.labels[i]}


class Record(TrainerCallback):
    stamps = []

    def on_step_end(self, args, state, control, **kwargs):
        self.stamps.append(time.perf_counter())


def get_args():
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=1024)
    parser.add_argument("--size", type=int, default=48)
    parser.add_argument("--hidden", type=int, default=96)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--effective_batch", type=int, default=32)
    parser.add_argument("--per_device", type=int, default=32)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--seed", type=int, default=17)
    return parser.parse_args()


def build_model(args):
    return ViTForImageClassification(ViTConfig(
        image_size=args.size, patch_size=8, hidden_size=args.hidden, num_hidden_layers=args.layers,
        num_attention_heads=4, intermediate_size=3 * args.hidden, num_labels=len(DISEASES),
        hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    ))


def main():
    args = get_args()
    set_seed(args.seed)
    record = Record()
    with tempfile.TemporaryDirectory() as out:
        config = TrainingArguments(
            output_dir=out,
            per_device_train_batch_size=args.per_device,
            gradient_accumulation_steps=args.effective_batch // args.per_device,
            max_steps=args.steps,
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
            model=build_model(args),
            args=config,
            train_dataset=LeafImages(args.images, args.size, args.seed),
            callbacks=[record],
        )
        begin = time.perf_counter()
        trainer.train()
        fit_s = time.perf_counter() - begin
    losses = [float(entry["loss"]) for entry in trainer.state.log_history if "loss" in entry]
    print("RESULT " + json.dumps({
        "step_s": (record.stamps[-1] - record.stamps[2]) / (len(record.stamps) - 3),
        "fit_s": fit_s,
        "loss": sum(losses[-2:]) / 2,
    }), flush=True)


if __name__ == "__main__":
    main()
