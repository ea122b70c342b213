"""Models, optimizers and loaders whose work moves a fake clock by what the story says."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import torch
from support.conformance.story import (
    EVALUATED,
    ROWS,
    TOKENS,
    Story,
    amount_ns,
    loss_of,
    tokens_of,
)
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, IterableDataset

from trainperf.testing import FakeClock


Batch = dict[str, Tensor]


class Planted:
    """What takes time in one fit of a story.

    Args:
        story: That is told.
        clock: That is moved.
        first_epoch: Of the fit, where it resumes another.
    """

    def __init__(self, story: Story, clock: FakeClock, first_epoch: int = 0) -> None:
        self.story, self.clock, self.first_epoch = story, clock, first_epoch
        self.numbers: Counter[str] = Counter()
        self.batches = self.steps = 0
        """Batches that were made; steps that were complete."""
        self.micro_batches = 0
        """Of this epoch."""
        self.look: Callable[[], object] = int
        """Called in the callback of each step."""

    def spend(self, place: str) -> None:
        """Time passes there, and perhaps it raises."""
        number = self.numbers[place]
        self.numbers[place] += 1
        self.clock.advance(ns=amount_ns(place, number))
        if self.story.raises == (place, number):
            raise self.story.error("planted")

    def copy(self) -> None:
        """A batch is brought to the device, unless it is there."""
        if self.story.loader != "none":
            self.spend("copy")

    # -- the loop -----------------------------------------------------------------------------

    @property
    def will_close(self) -> bool:
        """Whether the micro-batch that goes on is the last of its step."""
        number = self.micro_batches + 1
        return number == self.story.batches or number % self.story.accumulation == 0

    def closes(self) -> bool:
        """Whether the micro-batch that is over is the last of its step.  Asked once for each."""
        closes = self.will_close
        self.steps += closes
        self.micro_batches = (self.micro_batches + 1) % self.story.batches
        return closes

    def after(self) -> bool:
        """What a user's callback does after a micro-batch; whether it was the last of its step."""
        closes = self.closes()
        if closes:
            self.spend("callback")
            self.look()
        elif self.story.talks:
            self.spend("between")
        return closes

    @property
    def validates(self) -> bool:
        """Whether a validation follows the step that is complete."""
        return bool(self.story.validates) and self.steps % self.story.validates == 0

    @property
    def saves(self) -> bool:
        """Whether a checkpoint does."""
        return bool(self.story.saves) and self.steps % self.story.saves == 0

    @property
    def epochs(self) -> int:
        """Those of this fit."""
        return self.story.epochs - self.first_epoch

    # -- what is trained ----------------------------------------------------------------------

    def model(self) -> "Model":
        """A new one."""
        return Model(self)

    def optimizer(self, model: nn.Module) -> "Updating":
        """Of a model."""
        return Updating(model.parameters(), self)

    def scaler(self) -> torch.amp.GradScaler | None:
        """One that overflows only where that is planted."""
        if self.story.overflows is None:
            return None
        return torch.amp.GradScaler("cpu", init_scale=2.0**4, growth_interval=10**6)

    def gradient(self, gradient: Tensor) -> Tensor:
        """As it is, or infinite."""
        overflows = self.steps in (self.story.overflows or ())
        return gradient * float("inf") if overflows else gradient

    # -- batches ------------------------------------------------------------------------------

    def batch(self) -> Batch:
        """The next one."""
        number = self.batches
        self.batches += 1
        mask = torch.zeros(ROWS, TOKENS, dtype=torch.int64)
        mask[:, : tokens_of(number)] = 1
        return {"x": torch.full((ROWS, 4), loss_of(number)), "attention_mask": mask}

    def loader(self, wrap: Callable[[Batch], Any] = dict) -> Any:
        """Batches of an epoch, each made after a while."""

        def collate(rows: object) -> Any:
            self.spend("loader")
            return wrap(self.batch())

        if self.story.loader == "none":
            return Made(self, wrap)
        rows = ROWS * self.story.batches
        dataset = Stream(rows) if self.story.loader == "unknown" else Rows(rows)
        return DataLoader(dataset, batch_size=ROWS, collate_fn=collate)

    def validation_loader(self) -> "DataLoader[Batch]":
        """Batches of a validation."""

        def collate(rows: object) -> Batch:
            self.spend("validation_loader")
            return {"x": torch.ones(ROWS, 4), "attention_mask": torch.ones(ROWS, TOKENS).long()}

        return DataLoader(Rows(ROWS * EVALUATED), batch_size=ROWS, collate_fn=collate)

    def validate(self, model: nn.Module, batches: Any = None) -> None:
        """As a loop of one's own does it."""
        model.eval()
        with torch.no_grad():
            for batch in self.validation_loader():
                model(**batch)
        model.train()


class Rows(Dataset[int]):
    """Numbers."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __len__(self) -> int:
        return self.number

    def __getitem__(self, place: int) -> int:
        return place


class Stream(IterableDataset[int]):
    """Numbers of which nobody knows how many they are."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.number))


class Made:
    """The batches of an epoch; Lightning begins an iteration for nothing."""

    def __init__(self, planted: Planted, wrap: Callable[[Batch], Any]) -> None:
        self.planted, self.wrap = planted, wrap

    def __len__(self) -> int:
        return self.planted.story.batches

    def __iter__(self) -> Iterator[Any]:
        return (self.wrap(self.planted.batch()) for _ in range(len(self)))


class _Backward(torch.autograd.Function):
    """The identity; its gradient takes a while."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, planted: Planted) -> Tensor:
        ctx.planted = planted
        return x.clone()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        ctx.planted.spend("backward")
        return ctx.planted.gradient(gradients[0]), None


class Model(nn.Module):
    """One weight, which is 1; its loss is the mean of what it is given."""

    def __init__(self, planted: Planted) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(1))
        self.planted = planted

    def forward(self, x: Tensor, attention_mask: Tensor) -> Batch:
        """The loss, alone in a dictionary."""
        del attention_mask
        self.planted.spend("forward" if self.training else "validation_forward")
        return {"loss": _Backward.apply((self.weight * x).mean(), self.planted)}


class Updating(torch.optim.Optimizer):
    """Changes nothing, after a while."""

    def __init__(self, parameters: Any, planted: Planted) -> None:
        super().__init__(parameters, {"lr": 0.5})
        self.planted = planted

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """An update."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.planted.spend("update")
        return loss
