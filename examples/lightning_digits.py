"""A digit classifier under Lightning's Trainer, in the style of Lightning's own examples."""

import lightning
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainperf.lightning import TrainPerf  # trainperf


class Classifier(lightning.LightningModule):
    """One hidden layer."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(784, 128), nn.ReLU(), nn.Linear(128, 10))

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        """The loss of a batch."""
        inputs, labels = batch
        loss = nn.functional.cross_entropy(self.net(inputs), labels)
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW."""
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    """Train two epochs on noise; every operator of step 40 is looked at."""
    lightning.seed_everything(0, verbose=False)
    data = TensorDataset(torch.randn(960, 784), torch.randint(0, 10, (960,)))
    trainer = lightning.Trainer(
        max_epochs=2,
        devices=1,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        callbacks=[TrainPerf(audit_at=40)],  # trainperf
    )
    trainer.fit(Classifier(), DataLoader(data, batch_size=32, shuffle=True))


if __name__ == "__main__":
    main()
