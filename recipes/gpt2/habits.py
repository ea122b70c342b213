"""Habits of first scripts: what they compute and write down in every step."""

from collections.abc import Sequence

import lightning as L  # noqa: N812 - the name Lightning's own documentation uses
from lightning.pytorch.callbacks import Callback
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor, nn
from torch.optim import Optimizer
from torchmetrics.classification import MulticlassAccuracy
from torchmetrics.text import Perplexity

from recipes.gpt2.batches import IGNORED
from recipes.gpt2.stages import Settings


def habits(settings: Settings) -> Sequence[Callback]:
    """The callbacks of a first script, besides those that measure."""
    return [Histograms(settings.histograms_every)] if settings.histograms_every else []


class Histograms(Callback):
    """Histograms of every weight and its gradient in TensorBoard.

    Args:
        every: Steps from one to the next.
    """

    def __init__(self, every: int) -> None:
        self._every = every

    def on_before_optimizer_step(
        self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: Optimizer
    ) -> None:
        """Gradients are complete, weights not yet changed."""
        del optimizer
        if trainer.global_step % self._every:
            return
        loggers = (each for each in trainer.loggers if isinstance(each, TensorBoardLogger))
        for board in loggers:
            for name, weight in pl_module.named_parameters():
                board.experiment.add_histogram(name, weight, trainer.global_step)
                if weight.grad is not None:
                    board.experiment.add_histogram(f"{name}.grad", weight.grad, trainer.global_step)


class Metrics(nn.Module):
    """Accuracy, top-5 accuracy and perplexity of a batch, as torchmetrics computes them.

    Args:
        classes: Tokens in the vocabulary.
    """

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.accuracy, self.top5 = (
            MulticlassAccuracy(classes, top_k=top, average="micro", ignore_index=IGNORED)
            for top in (1, 5)
        )
        self.perplexity = Perplexity(ignore_index=IGNORED)

    def forward(self, logits: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """From scores (tokens, classes) and labels (tokens)."""
        logits = logits.detach()
        return {
            "accuracy": self.accuracy(logits, labels),
            "top5": self.top5(logits, labels),
            "perplexity": self.perplexity(logits[None], labels[None]),
        }
