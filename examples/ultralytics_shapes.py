"""A detector of squares, in the style of Ultralytics' guide to custom trainers."""

from pathlib import Path
from typing import Any

import torch
from PIL import Image
from ultralytics import YOLO
from ultralytics.models.yolo.detect import DetectionTrainer

from trainperf.loop import LoopMonitor, MonitoredLoader  # trainperf


class MeasuredTrainer(DetectionTrainer):  # trainperf
    """The loop is Ultralytics' own: what it lets one override has a phase around it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.monitor = LoopMonitor("runs/ultralytics")
        self.updated = False
        super().__init__(*args, **options)

    def run_callbacks(self, event: str) -> None:
        """Everybody's callbacks."""
        if event == "on_train_start":
            self.monitor.watch(self.model, self.optimizer, self.scaler, self.device)
            self.train_loader = MonitoredLoader(self.monitor, self.train_loader)
        with self.monitor.phase("callbacks"):
            super().run_callbacks(event)
        if event == "on_train_batch_end" and self.updated:
            self.updated = False
            self.monitor.end_step(self.loss)
        elif event == "on_train_end":
            self.monitor.close()

    def preprocess_batch(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The copy to the device."""
        with self.monitor.phase("h2d"):
            return super().preprocess_batch(batch)

    def optimizer_step(self) -> None:
        """Clipping, the update, and the moving average of the weights."""
        with self.monitor.phase("optimizer"):
            super().optimizer_step()
        self.updated = True

    def validate(self) -> Any:
        """A pause."""
        with self.monitor.phase("validation"):
            return super().validate()

    def save_model(self) -> Any:
        """A pause, too."""
        with self.monitor.phase("checkpoint"):
            return super().save_model()


def draw(folder: Path, number: int, size: int = 64) -> Path:
    """Pictures of a square each, and the file that tells Ultralytics where they are."""
    random = torch.Generator().manual_seed(0)
    for name in ("images", "labels"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    for place in range(number):
        left, top = torch.randint(0, size // 2, (2,), generator=random).tolist()
        picture = Image.new("RGB", (size, size), "white")
        picture.paste("red", (left, top, left + size // 2, top + size // 2))
        picture.save(folder / "images" / f"{place}.png")
        center = [(each + size / 4) / size for each in (left, top)]
        label = f"0 {center[0]} {center[1]} 0.5 0.5\n"
        (folder / "labels" / f"{place}.txt").write_text(label)
    described = folder / "shapes.yaml"
    described.write_text(
        f"path: {folder.resolve()}\ntrain: images\nval: images\nnames:\n  0: square\n"
    )
    return described


def main() -> None:
    """Train two epochs."""
    model = YOLO("yolo11n.yaml")
    model.train(
        trainer=MeasuredTrainer,  # trainperf
        data=str(draw(Path("shapes"), 64)),
        epochs=2,
        imgsz=64,
        batch=8,
        nbs=8,
        workers=0,
        device="cpu",
        plots=False,
        amp=False,
    )


if __name__ == "__main__":
    main()
