"""A sleep planted in one place of the step comes back in the right phase, and in no other.

Of loader, forward, backward and update the stories of `tests/conformance` say it.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.plugins.precision import Precision
from lightning.pytorch.strategies import SingleDeviceStrategy
from support.fits import (
    At,
    Loader,
    Model,
    OwnLogger,
    Pause,
    assert_comes_back,
    planted,
)

from trainperf.core.phases import Phase


STEPS = 4


@dataclass
class Case:
    """A fit that is slow in one place."""

    model: pl.LightningModule = field(default_factory=Model)
    callbacks: tuple[Callback, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)


def callback(hook: str) -> Callable[[Pause], Case]:
    """Slow in one hook of a callback."""
    return lambda sleeper: Case(callbacks=(At(hook, sleeper),))


def module(hook: str) -> Callable[[Pause], Case]:
    """Slow in one hook of the module, after what the hook does anyway."""

    def case(sleeper: Pause) -> Case:
        model = Model()
        usual = getattr(model, hook)

        def slow(*args: Any, **options: Any) -> Any:
            result = usual(*args, **options)
            sleeper()
            return result

        setattr(model, hook, slow)
        return Case(model)

    return case


def scheduler(sleeper: Pause) -> Case:
    """Slow in a learning-rate scheduler that is stepped every step."""

    class SlowLR(torch.optim.lr_scheduler.LambdaLR):
        def step(self, epoch: int | None = None) -> None:
            super().step(epoch)
            if self.last_epoch > 0:  # making one steps it once
                sleeper()

    def configure() -> Any:
        sgd = torch.optim.SGD(model.parameters(), lr=0.01)
        slow = SlowLR(sgd, lambda _epoch: 1.0)
        return {"optimizer": sgd, "lr_scheduler": {"scheduler": slow, "interval": "step"}}

    model = Model()
    model.configure_optimizers = configure
    return Case(model)


def convert_input(sleeper: Pause) -> Case:
    """Slow in a precision plugin's own method, which no action brackets."""

    class SlowPrecision(Precision):
        def convert_input(self, data: Any) -> Any:
            sleeper()
            return data

    return Case(options={"plugins": [SlowPrecision()]})


def strategy(sleeper: Pause) -> Case:
    """Slow in a strategy's own hook."""

    class SlowStrategy(SingleDeviceStrategy):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
            sleeper()

    return Case(options={"strategy": SlowStrategy(device=torch.device("cpu"), accelerator=None)})


class SlowLogger(OwnLogger):
    """Slow to write the user's own metrics."""

    def __init__(self, sleeper: Pause) -> None:
        super().__init__()
        self._sleeper = sleeper

    def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
        """Slow, but for what trainperf logs itself."""
        if "mine" in metrics:
            self._sleeper()


def logger(sleeper: Pause) -> Case:
    """Slow in a logger: the framework's own time after the last hook."""

    class Logging(Model):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.log("mine", 1.0)
            return super().training_step(batch, batch_idx)

    return Case(Logging(), options={"logger": SlowLogger(sleeper), "log_every_n_steps": 1})


CASES: dict[str, tuple[Callable[[Pause], Case], Phase]] = {
    "transfer_batch_to_device": (module("transfer_batch_to_device"), Phase.H2D),
    "optimizer_zero_grad": (module("optimizer_zero_grad"), Phase.OPTIMIZER),
    "configure_gradient_clipping": (module("configure_gradient_clipping"), Phase.OPTIMIZER),
    "scheduler.step": (scheduler, Phase.OPTIMIZER),
    "Callback.on_train_batch_start": (callback("on_train_batch_start"), Phase.CALLBACKS),
    "Callback.on_before_zero_grad": (callback("on_before_zero_grad"), Phase.CALLBACKS),
    "Callback.on_before_backward": (callback("on_before_backward"), Phase.CALLBACKS),
    "Callback.on_after_backward": (callback("on_after_backward"), Phase.CALLBACKS),
    "Callback.on_before_optimizer_step": (callback("on_before_optimizer_step"), Phase.CALLBACKS),
    "Callback.on_train_batch_end": (callback("on_train_batch_end"), Phase.CALLBACKS),
    "module.on_before_batch_transfer": (module("on_before_batch_transfer"), Phase.CALLBACKS),
    "module.on_after_batch_transfer": (module("on_after_batch_transfer"), Phase.CALLBACKS),
    "module.on_train_batch_start": (module("on_train_batch_start"), Phase.CALLBACKS),
    "module.on_before_backward": (module("on_before_backward"), Phase.CALLBACKS),
    "module.on_after_backward": (module("on_after_backward"), Phase.CALLBACKS),
    "module.on_train_batch_end": (module("on_train_batch_end"), Phase.CALLBACKS),
    "logger": (logger, Phase.LOOP),
    "Precision.convert_input": (convert_input, Phase.OTHER),
    "Strategy.on_train_batch_start": (strategy, Phase.OTHER),
}


@pytest.mark.parametrize("place", CASES)
def test_a_sleep_comes_back_where_it_was_planted(place: str, tmp_path: Path) -> None:
    """Its whole length is in one phase."""
    plant, phase = CASES[place]
    sleeper = Pause()
    case = plant(sleeper)
    ran = planted(tmp_path, case.model, Loader(STEPS), *case.callbacks, **case.options)
    assert len(sleeper.slept_ns) == STEPS
    assert_comes_back(ran, phase, sleeper.slept_ns)
