"""Single-scale grid detector for coloured boxes on noise (Lightning)."""
import json
import tempfile
import time

import lightning as L
import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch.loggers import CSVLogger
from torch.utils.data import DataLoader, TensorDataset

SEED = 8
SIZE, GRID = 64, 8
CLASSES = 3
BATCH = 24
EPOCHS = 3
N_TRAIN, N_VAL = 2400, 480


def make_scenes(n, seed):
    g = torch.Generator().manual_seed(seed)
    img = 0.3 * torch.randn(n, 3, SIZE, SIZE, generator=g)
    obj = torch.zeros(n, GRID, GRID)
    box = torch.zeros(n, 4, GRID, GRID)
    cls = torch.zeros(n, GRID, GRID, dtype=torch.long)
    cell = SIZE // GRID
    for i in range(n):
        for _ in range(int(torch.randint(1, 4, (1,), generator=g))):
            w, h = torch.randint(8, 24, (2,), generator=g).tolist()
            x0 = int(torch.randint(0, SIZE - w, (1,), generator=g))
            y0 = int(torch.randint(0, SIZE - h, (1,), generator=g))
            c = int(torch.randint(CLASSES, (1,), generator=g))
            img[i, c, y0:y0 + h, x0:x0 + w] += 1.5
            cx, cy = x0 + w / 2, y0 + h / 2
            gx, gy = int(cx // cell), int(cy // cell)
            obj[i, gy, gx] = 1
            box[i, :, gy, gx] = torch.tensor([cx / cell - gx, cy / cell - gy, w / SIZE, h / SIZE])
            cls[i, gy, gx] = c
    return TensorDataset(img, obj, box, cls)


class GridDetector(L.LightningModule):
    def __init__(self):
        super().__init__()
        chans = [3, 16, 32, 64]
        layers = []
        for a, b in zip(chans, chans[1:]):
            layers += [nn.Conv2d(a, b, 3, stride=2, padding=1, bias=False), nn.BatchNorm2d(b), nn.LeakyReLU(0.1)]
        self.body = nn.Sequential(*layers, nn.Conv2d(64, 64, 3, padding=1), nn.LeakyReLU(0.1))
        self.head = nn.Conv2d(64, 5 + CLASSES, 1)

    def forward(self, x):
        out = self.head(self.body(x))
        return out[:, 0], out[:, 1:5].sigmoid(), out[:, 5:]

    def loss(self, batch):
        img, obj, box, cls = batch
        p_obj, p_box, p_cls = self(img)
        n = obj.sum().clamp(min=1)
        l_obj = F.binary_cross_entropy_with_logits(p_obj, obj, reduction="sum") / n
        l_box = (F.smooth_l1_loss(p_box, box, reduction="none").sum(1) * obj).sum() / n
        l_cls = (F.cross_entropy(p_cls, cls, reduction="none") * obj).sum() / n
        return l_obj + 5 * l_box + l_cls

    def training_step(self, batch, batch_idx):
        loss = self.loss(batch)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        img, obj, _, cls = batch
        p_obj, _, p_cls = self(img)
        hit = ((p_obj > 0) & (obj > 0)).sum() / obj.sum().clamp(min=1)
        acc = (p_cls.argmax(1) == cls)[obj > 0].float().mean()
        self.log_dict({"val_loss": self.loss(batch), "val_recall": hit, "val_acc": acc})

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=2e-3)


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
    train = DataLoader(
        make_scenes(N_TRAIN, SEED), batch_size=BATCH, shuffle=True, drop_last=True,
        generator=torch.Generator().manual_seed(SEED),
    )
    val = DataLoader(make_scenes(N_VAL, SEED + 1), batch_size=48)
    model = GridDetector()
    clock = StepClock()
    with tempfile.TemporaryDirectory() as tmp:
        trainer = L.Trainer(
            max_epochs=EPOCHS, accelerator="cpu", devices=1, callbacks=[clock],
            logger=CSVLogger(tmp), log_every_n_steps=25, val_check_interval=1.0, num_sanity_val_steps=0,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )
        start = time.perf_counter()
        trainer.fit(model, train, val)
        fit_s = time.perf_counter() - start
    print({k: round(float(v), 4) for k, v in trainer.callback_metrics.items()})
    print("RESULT " + json.dumps(clock.result(fit_s)))


if __name__ == "__main__":
    main()
