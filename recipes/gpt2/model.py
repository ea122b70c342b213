"""GPT-2 from transformers in a LightningModule, with random weights: nothing is downloaded."""

import lightning as L  # noqa: N812 - the name Lightning's own documentation uses
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import GPT2Config, GPT2LMHeadModel

from recipes.gpt2.batches import IGNORED, Batch
from recipes.gpt2.habits import Metrics
from recipes.gpt2.stages import Preset, Settings
from recipes.gpt2.text import END, PAD
from trainperf.remedies import same_document


class GPT2(L.LightningModule):
    """The model of a preset, run as the settings say.

    Args:
        preset: Its size.
        settings: How it is run.
        labels_per_update: Mean number of labels in an update.  Micro-batches divide by it instead
            of by their own number, so that an update is the same however it is cut into them.
    """

    def __init__(
        self, preset: Preset, settings: Settings, labels_per_update: float | None = None
    ) -> None:
        super().__init__()
        self.preset = preset
        self.settings = settings
        self.labels_per_update = labels_per_update
        self._sum = torch.zeros(())
        self.metrics = Metrics(preset.vocabulary)
        self.network = GPT2LMHeadModel(_config(preset, settings))
        if settings.vocabulary_multiple > 1:
            # After the weights were drawn, so that the tokens that occur begin with the same ones.
            self.network.resize_token_embeddings(
                pad_to_multiple_of=settings.vocabulary_multiple, mean_resizing=False
            )
        if settings.checkpointing:
            # Its name until transformers 5.21, and the one since.
            older = "gradient_checkpointing_enable"
            newer = getattr(self.network, "activation_checkpointing_enable", None)
            (newer or getattr(self.network, older))({"use_reentrant": False})
        if settings.compiled:
            # The number of rows changes from batch to batch: one graph for all, compiled once.
            self.network.compile(mode=settings.compiled, dynamic=True)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Cross-entropy in nats per token: a mean over the run, of every label alike."""
        logits, labels = self.logits(batch).flatten(0, 1), batch["labels"].flatten()
        if self.labels_per_update is None:
            loss = cross_entropy(logits, labels, ignore_index=IGNORED)
        else:
            # Lightning divides by the number of micro-batches.
            share = self.settings.accumulation / self.labels_per_update
            loss = share * cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
        loss = self._of_update(loss, batch_idx % self.settings.accumulation)
        self.log("loss", loss)
        every = self.settings.metrics_every
        if every and batch_idx % every == 0:
            self.log_dict(self.metrics(logits, labels))
        return loss

    def _of_update(self, loss: Tensor, place: int) -> Tensor:
        """The mean over the update's micro-batches so far, with the gradient of this one.

        trainperf records the last micro-batch's loss of a step.  So that stages with other
        micro-batches can be compared, it is the loss of the whole update.
        """
        own = loss.detach()
        self._sum = own if place == 0 else self._sum + own
        return loss + (self._sum / (place + 1) - own)

    def logits(self, batch: Batch) -> Tensor:
        """Scores of the next token: (rows, width, vocabulary)."""
        scores: Tensor = self.network(
            input_ids=batch["input_ids"],
            attention_mask=self._attention_mask(batch),
            position_ids=batch.get("position_ids"),
        ).logits
        return scores

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW, one group: the walkthrough is about the step's time, not about its recipe."""
        return torch.optim.AdamW(
            self.parameters(), lr=self.preset.learning_rate, fused=self.settings.fused or None
        )

    def _attention_mask(self, batch: Batch) -> Tensor:
        if "document_ids" not in batch:
            return batch["attention_mask"]
        # Built here and not in the loader: on the device it costs one comparison, and the copy
        # would grow from `width` to `width` squared.
        allowed = same_document(batch["document_ids"])
        if self.settings.attention != "eager":
            return allowed
        # Eager attention adds its mask to the scores.  The lowest number, not -inf, so that
        # 0 × mask stays 0.
        dtype = self.network.dtype
        added = torch.zeros_like(allowed, dtype=dtype)
        return added.masked_fill(~allowed, torch.finfo(dtype).min)


def _config(preset: Preset, settings: Settings) -> GPT2Config:
    return GPT2Config(
        vocab_size=preset.vocabulary,
        n_positions=preset.context,
        n_layer=preset.layers,
        n_head=preset.heads,
        n_embd=preset.width,
        bos_token_id=END,
        eos_token_id=END,
        pad_token_id=PAD,
        # Without dropout every stage computes the same function, so their losses can be compared.
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        use_cache=False,  # keys and values of a training step are not read again
        # Read by the base class from its keyword arguments, which are not in the signature.
        attn_implementation=settings.attention,  # type: ignore[call-arg]
    )
