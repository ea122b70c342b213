"""Distil a wide convolutional teacher into a small student (Lightning)."""
import json
import time

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

SEED = 4
CLASSES = 10
BATCH = 32
EPOCHS = 4
N = 2048
T = 4.0
ALPHA = 0.7


def conv(cin, cout, stride=1):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, stride=stride, padding=1, bias=False),
        nn.GroupNorm(8, cout),
        nn.ReLU(),
    )


def make_net(width):
    return nn.Sequential(
        conv(3, width, 2),
        conv(width, width),
        conv(width, 2 * width, 2),
        conv(2 * width, 2 * width),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2 * width, CLASSES),
    )


def make_images():
    g = torch.Generator().manual_seed(SEED)
    y = torch.randint(CLASSES, (N,), generator=g)
    proto = F.interpolate(torch.randn(CLASSES, 3, 8, 8, generator=g), size=32, mode="bilinear")
    return proto[y] + 0.7 * torch.randn(N, 3, 32, 32, generator=g), y


class Distiller(L.LightningModule):
    def __init__(self, teacher):
        super().__init__()
        self.teacher = teacher.eval()
        self.student = make_net(24)

    def training_step(self, batch, batch_idx):
        x, y = batch
        s_logits = self.student(x)
        t_logits = self.teacher(x)
        soft = F.kl_div(
            F.log_softmax(s_logits / T, dim=1),
            F.softmax(t_logits / T, dim=1),
            reduction="batchmean",
        ) * T * T
        hard = F.cross_entropy(s_logits, y)
        loss = ALPHA * soft + (1 - ALPHA) * hard
        self.log("loss", loss, on_step=False, on_epoch=True)
        return loss

    def on_train_epoch_end(self):
        print(f"epoch {self.current_epoch} loss {self.trainer.callback_metrics['loss']:.4f}")

    def configure_optimizers(self):
        return torch.optim.SGD(self.student.parameters(), lr=0.02, momentum=0.9, nesterov=True)


class StepClock(L.Callback):
    """Wall time of the fit and of its optimizer steps."""

    def __init__(self):
        self.t20 = self.last = None
        self.paused = self.paused_last = self.paused20 = 0.0
        self.steps = 0
        self.losses = []

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        self.last = time.perf_counter()
        self.paused_last = self.paused
        self.steps = trainer.global_step
        self.losses.append(outputs["loss"].detach())
        if self.steps == 20:
            self.t20, self.paused20 = self.last, self.paused

    def on_validation_start(self, trainer, pl_module):
        self.val_start = time.perf_counter()

    def on_validation_end(self, trainer, pl_module):
        self.paused += time.perf_counter() - self.val_start

    def result(self, fit_s):
        busy = self.last - self.t20 - (self.paused_last - self.paused20)
        return {
            "step_s": busy / (self.steps - 20),
            "fit_s": fit_s,
            "loss": torch.stack(self.losses[-30:]).mean().item(),
        }

def main():
    L.seed_everything(SEED)
    teacher = make_net(48)  # stands for a checkpoint
    x, y = make_images()
    loader = DataLoader(
        TensorDataset(x, y), batch_size=BATCH, shuffle=True, drop_last=True,
        generator=torch.Generator().manual_seed(SEED),
    )
    model = Distiller(teacher)
    clock = StepClock()
    trainer = L.Trainer(
        max_epochs=EPOCHS, accelerator="cpu", devices=1, logger=False, callbacks=[clock],
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )
    start = time.perf_counter()
    trainer.fit(model, loader)
    print("RESULT " + json.dumps(clock.result(time.perf_counter() - start)))


if __name__ == "__main__":
    main()
