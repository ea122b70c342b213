"""Stand-ins for frameworks that are not installed here: what their documentation says of them.

Each has only what the examples and the planted loops use.  What runs on the real ones is in
`tests/examples/test_real_frameworks.py`.
"""

import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader


def installed(framework: str) -> bool:
    """Whether the real one can be imported."""
    return framework not in STAND_INS or importlib.util.find_spec(framework) is not None


def put_in(framework: str, patch: pytest.MonkeyPatch, *, always: bool = False) -> None:
    """Have the stand-in imported in place of a framework that is not there, or always."""
    if framework not in STAND_INS or (installed(framework) and not always):
        return
    for name, module in STAND_INS[framework]().items():
        patch.setitem(sys.modules, name, module)


# -- DeepSpeed ------------------------------------------------------------------------------------


class Engine(torch.nn.Module):
    """A DeepSpeed engine: `step` updates at a boundary."""

    def __init__(self, model: torch.nn.Module, config: dict[str, Any]) -> None:
        super().__init__()
        self.module = model
        self.device = torch.device("cpu")
        self.inner = torch.optim.AdamW(model.parameters(), lr=1e-3)
        self.optimizer = SimpleNamespace(optimizer=self.inner)
        self.micro_steps = 0
        self.each = config.get("gradient_accumulation_steps", 1)

    def forward(self, *inputs: Any, **named: Any) -> Any:
        """The model's."""
        return self.module(*inputs, **named)

    def is_gradient_accumulation_boundary(self) -> bool:
        """Whether the next `step` updates."""
        return (self.micro_steps + 1) % self.each == 0

    def backward(self, loss: torch.Tensor) -> None:
        """Gradients of its part of the loss."""
        (loss / self.each).backward()

    def step(self) -> None:
        """An update, at a boundary; skipped if a gradient overflowed."""
        update = self.is_gradient_accumulation_boundary()
        self.micro_steps += 1
        if not update:
            return
        gradients = [p.grad for p in self.module.parameters() if p.grad is not None]
        if all(gradient.isfinite().all() for gradient in gradients):
            self.inner.step()
        self.inner.zero_grad()


def _initialize(
    model: torch.nn.Module,
    config: dict[str, Any],
    training_data: Any = None,
    **_: Any,
) -> tuple[Any, Any, Any, Any]:
    engine = Engine(model, config)
    size = config["train_batch_size"] // engine.each
    loader = None if training_data is None else DataLoader(training_data, batch_size=size)
    return engine, engine.optimizer, loader, None


def _deepspeed() -> dict[str, ModuleType]:
    module = ModuleType("deepspeed")
    vars(module).update(initialize=_initialize)
    return {"deepspeed": module}


# -- Ultralytics ----------------------------------------------------------------------------------


class BaseTrainer:
    """The loop of an Ultralytics trainer, as its `BaseTrainer._do_train` has it."""

    def __init__(self, epochs: int = 1) -> None:
        self.epochs = epochs
        self.accumulate = 1
        self.callbacks: dict[str, list[Callable[[Any], object]]] = {}
        self.device = torch.device("cpu")
        self.scaler = torch.amp.GradScaler("cpu", enabled=False)
        self.model: torch.nn.Module = torch.nn.Linear(4, 1)
        self.train_loader: Any = DataLoader(
            [{"img": torch.ones(4)} for _ in range(64)],  # type: ignore[arg-type]
            batch_size=8,
        )
        self.loss = torch.zeros(())

    def train(self) -> None:
        """All epochs."""
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.01)
        self.run_callbacks("on_train_start")
        for _ in range(self.epochs):
            self.run_callbacks("on_train_epoch_start")
            last_opt_step = -1
            for ni, batch in enumerate(self.train_loader):
                self.run_callbacks("on_train_batch_start")
                self.loss = self.compute(self.preprocess_batch(batch))
                self.scaler.scale(self.loss).backward()  # type: ignore[no-untyped-call]
                if ni - last_opt_step >= self.accumulate:
                    self.optimizer_step()
                    last_opt_step = ni
                self.run_callbacks("on_train_batch_end")
            self.run_callbacks("on_train_epoch_end")
            self.validate()
            if self.save_model():
                self.run_callbacks("on_model_save")
            self.run_callbacks("on_fit_epoch_end")
        self.run_callbacks("on_train_end")

    def compute(self, batch: Any) -> torch.Tensor:
        """The loss; in the real one the model returns it."""
        return self.model(batch["img"]).square().mean()

    def run_callbacks(self, event: str) -> None:
        """All of an event."""
        for callback in self.callbacks.get(event, []):
            callback(self)

    def preprocess_batch(self, batch: Any) -> Any:
        """Moves it to the device."""
        return batch

    def optimizer_step(self) -> None:
        """Clips, updates."""
        self.scaler.unscale_(self.optimizer)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), max_norm=10.0)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.optimizer.zero_grad()

    def validate(self) -> tuple[dict[str, float], float]:
        """Metrics and fitness."""
        return {}, 0.0

    def save_model(self) -> bool:
        """Whether it was written."""
        return True


class Yolo:
    """`ultralytics.YOLO`, as far as training goes."""

    def __init__(self, model: str) -> None:
        self.model = model

    def train(self, trainer: type[BaseTrainer], epochs: int, **_: Any) -> None:
        """With a trainer of the user's."""
        trainer(epochs).train()


def _ultralytics() -> dict[str, ModuleType]:
    names = ("ultralytics", "ultralytics.models", "ultralytics.models.yolo")
    modules = {name: ModuleType(name) for name in (*names, "ultralytics.models.yolo.detect")}
    vars(modules["ultralytics"]).update(YOLO=Yolo)
    vars(modules["ultralytics.models.yolo.detect"]).update(DetectionTrainer=BaseTrainer)
    return modules


STAND_INS: dict[str, Callable[[], dict[str, ModuleType]]] = {
    "deepspeed": _deepspeed,
    "ultralytics": _ultralytics,
}
