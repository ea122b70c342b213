"""A text classifier in a loop of one's own, in the style of Accelerate's `nlp_example.py`."""

import argparse

import torch
from accelerate import Accelerator
from torch.optim import AdamW
from torch.utils.data import DataLoader
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    get_linear_schedule_with_warmup,
)

from trainperf.loop import LoopMonitor  # trainperf


VOCABULARY, LONGEST = 100, 32


def get_dataloader(number: int, batch_size: int) -> DataLoader:
    """Sentences of different lengths, padded to the longest, with a label each."""
    random = torch.Generator().manual_seed(0)
    rows = []
    for _ in range(number):
        length = int(torch.randint(8, LONGEST + 1, (1,), generator=random))
        mask = torch.arange(LONGEST) < length
        words = torch.randint(1, VOCABULARY, (LONGEST,), generator=random) * mask
        rows.append({"input_ids": words, "attention_mask": mask.long(), "labels": words.sum() % 2})
    return DataLoader(rows, batch_size=batch_size, shuffle=True)


def training_function(args: argparse.Namespace) -> None:
    """Train."""
    accelerator = Accelerator(
        cpu=args.cpu,
        mixed_precision=args.mixed_precision,
        gradient_accumulation_steps=args.gradient_accumulation_steps,
    )
    config = BertConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
    )
    model = BertForSequenceClassification(config)
    optimizer = AdamW(model.parameters(), lr=2e-4)
    train_dataloader = get_dataloader(240, batch_size=8)
    lr_scheduler = get_linear_schedule_with_warmup(optimizer, 10, 60)
    model, optimizer, train_dataloader, lr_scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, lr_scheduler
    )

    monitor = LoopMonitor("runs/accelerate")  # trainperf
    monitor.watch(  # trainperf
        model, optimizer, accelerator.scaler, accelerator.device, lr_scheduler
    )
    with monitor:  # trainperf
        for _ in range(2):
            model.train()
            for batch in monitor.batches(train_dataloader):  # trainperf
                with accelerator.accumulate(model):
                    with monitor.phase("forward"):  # trainperf
                        loss = model(**batch).loss
                    with monitor.phase("backward"):  # trainperf
                        accelerator.backward(loss)
                    with monitor.phase("optimizer"):  # trainperf
                        optimizer.step()
                        lr_scheduler.step()
                        optimizer.zero_grad()
                if accelerator.sync_gradients:  # trainperf
                    monitor.end_step(loss)  # trainperf


def main() -> None:
    """Read the arguments and train."""
    parser = argparse.ArgumentParser(description="Simple example of training script.")
    parser.add_argument("--mixed_precision", default="no", choices=["no", "fp16", "bf16"])
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--cpu", action="store_true", help="If passed, will train on the CPU.")
    training_function(parser.parse_args())


if __name__ == "__main__":
    main()
