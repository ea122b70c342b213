"""GPT-2 from transformers in a LightningModule, with random weights: nothing is downloaded."""

import lightning as L  # noqa: N812 - the name Lightning's own documentation uses
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import GPT2Config, GPT2LMHeadModel

from recipes.gpt2.batches import IGNORED, Batch
from recipes.gpt2.stages import Preset, Settings
from recipes.gpt2.text import END, PAD
from trainperf.remedies import same_document


class GPT2(L.LightningModule):
    """The model of a preset, run as the settings say."""

    def __init__(self, preset: Preset, settings: Settings) -> None:
        super().__init__()
        self.preset = preset
        self.settings = settings
        self.network = GPT2LMHeadModel(_config(preset, settings))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:  # noqa: ARG002
        """Mean cross-entropy over the labels, in nats per token."""
        logits = self.logits(batch)
        loss = cross_entropy(logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=IGNORED)
        self.log("loss", loss)
        return loss

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
        return torch.optim.AdamW(self.parameters(), lr=self.preset.learning_rate)

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
