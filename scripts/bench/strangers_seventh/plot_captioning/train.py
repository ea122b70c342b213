"""Caption small chart images: a ViT encoder and a GPT-2 decoder, trained with accelerate."""
import json
import statistics
import time
from dataclasses import dataclass

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch.utils.data import DataLoader, Dataset
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    VisionEncoderDecoderModel,
    ViTConfig,
    ViTModel,
    get_cosine_schedule_with_warmup,
)

KINDS = ["bar", "line", "scatter"]
TRENDS = ["rising", "falling", "flat"]
COLOURS = ["red", "green", "blue"]
VOCAB = ["<pad>", "<bos>", "<eos>", "a", "chart", "with", "values"] + KINDS + TRENDS + COLOURS
VOCAB += [str(n) for n in range(4, 13)]
TOKEN = {word: i for i, word in enumerate(VOCAB)}


@dataclass
class Config:
    seed: int = 21
    image_size: int = 64
    patch_size: int = 8
    vision_width: int = 128
    vision_layers: int = 5
    text_width: int = 96
    text_layers: int = 2
    num_train: int = 1280
    num_eval: int = 160
    batch_size: int = 16
    epochs: int = 2
    learning_rate: float = 1e-3
    clip_norm: float = 1.0
    log_every: int = 20


def draw_chart(rng, size):
    kind, trend, colour = (int(rng.integers(3)) for _ in range(3))
    count = int(rng.integers(4, 13))
    base = np.linspace(0.15, 0.85, count)
    heights = {0: base, 1: base[::-1], 2: np.full(count, 0.5)}[trend] + rng.normal(0, 0.06, count)
    heights = np.clip(heights, 0.05, 0.95)
    image = np.ones((3, size, size), dtype=np.float32)
    xs = np.linspace(3, size - 4, count).astype(int)
    ys = (size - 1 - heights * (size - 2)).astype(int)
    mask = np.zeros((size, size), dtype=bool)
    if kind == 0:
        for x, y in zip(xs, ys):
            mask[y:, x - 1:x + 2] = True
    elif kind == 1:
        columns = np.arange(xs[0], xs[-1] + 1)
        mask[np.interp(columns, xs, ys).astype(int), columns] = True
    else:
        for x, y in zip(xs, ys):
            mask[max(y - 1, 0):y + 2, x - 1:x + 2] = True
    for channel in range(3):
        if channel != colour:
            image[channel][mask] = 0.1
    caption = ["<bos>", "a", TRENDS[trend], COLOURS[colour], KINDS[kind], "chart", "with", str(count), "values", "<eos>"]
    return image, [TOKEN[word] for word in caption]


class ChartCaptions(Dataset):
    def __init__(self, count, size, seed):
        rng = np.random.default_rng(seed)
        charts = [draw_chart(rng, size) for _ in range(count)]
        self.pixels = torch.from_numpy(np.stack([image for image, _ in charts])).sub_(0.5).div_(0.5)
        self.captions = torch.tensor([caption for _, caption in charts])

    def __len__(self):
        return len(self.captions)

    def __getitem__(self, index):
        return {"pixel_values": self.pixels[index], "caption": self.captions[index]}


def build_model(cfg):
    encoder = ViTModel(ViTConfig(
        image_size=cfg.image_size, patch_size=cfg.patch_size, hidden_size=cfg.vision_width,
        num_hidden_layers=cfg.vision_layers, num_attention_heads=4,
        intermediate_size=4 * cfg.vision_width, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    ), add_pooling_layer=False)
    decoder = GPT2LMHeadModel(GPT2Config(
        vocab_size=len(VOCAB), n_positions=16, n_embd=cfg.text_width, n_layer=cfg.text_layers, n_head=4,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, add_cross_attention=True,
        bos_token_id=TOKEN["<bos>"], eos_token_id=TOKEN["<eos>"], pad_token_id=TOKEN["<pad>"],
    ))
    return VisionEncoderDecoderModel(encoder=encoder, decoder=decoder)


def forward_loss(model, batch):
    caption = batch["caption"]
    logits = model(pixel_values=batch["pixel_values"], decoder_input_ids=caption[:, :-1]).logits
    targets = caption[:, 1:]
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.size(-1)), targets.reshape(-1))
    return loss, logits, targets


@torch.no_grad()
def evaluate(model, loader):
    model.eval()
    right = total = loss_sum = 0.0
    for batch in loader:
        loss, logits, targets = forward_loss(model, batch)
        loss_sum += loss.item() * len(targets)
        right += (logits.argmax(-1) == targets).sum().item()
        total += targets.numel()
    model.train()
    return loss_sum / len(loader.dataset), right / total


def main():
    began = time.perf_counter()
    cfg = Config()
    set_seed(cfg.seed)
    accelerator = Accelerator(cpu=True)
    train_loader = DataLoader(
        ChartCaptions(cfg.num_train, cfg.image_size, cfg.seed), batch_size=cfg.batch_size, shuffle=True, drop_last=True)
    eval_loader = DataLoader(ChartCaptions(cfg.num_eval, cfg.image_size, cfg.seed + 1), batch_size=32)

    model = build_model(cfg)
    text_parameters = list(model.decoder.parameters()) + list(model.enc_to_dec_proj.parameters())
    optimizer = torch.optim.AdamW(text_parameters, lr=cfg.learning_rate, weight_decay=0.01)
    total_steps = cfg.epochs * len(train_loader)
    scheduler = get_cosine_schedule_with_warmup(optimizer, 20, total_steps)
    model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, eval_loader, scheduler)

    stamps, losses = [], []
    model.train()
    for epoch in range(cfg.epochs):
        for batch in train_loader:
            loss, _, _ = forward_loss(model, batch)
            accelerator.backward(loss)
            accelerator.clip_grad_norm_(text_parameters, cfg.clip_norm)
            optimizer.step()
            scheduler.step()
            optimizer.zero_grad()
            losses.append(loss.detach())
            stamps.append(time.perf_counter())
            if len(stamps) % cfg.log_every == 0:
                recent = torch.stack(losses[-cfg.log_every:]).mean().item()
                accelerator.print(f"step {len(stamps):4d}/{total_steps}  loss {recent:.4f}  lr {scheduler.get_last_lr()[0]:.2e}")
        eval_loss, accuracy = evaluate(model, eval_loader)
        accelerator.print(f"epoch {epoch}: eval loss {eval_loss:.4f}, token accuracy {accuracy:.3f}")

    accelerator.print("RESULT " + json.dumps({
        "step_s": round(statistics.median(b - a for a, b in zip(stamps, stamps[1:])), 5),
        "fit_s": round(time.perf_counter() - began, 3),
        "loss": round(torch.stack(losses[-10:]).mean().item(), 5),
    }))


if __name__ == "__main__":
    main()
