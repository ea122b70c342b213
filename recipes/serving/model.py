"""Classifier that is served: a small transformer on sequences of tokens of unlike lengths."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence


VOCABULARY, WIDTH, HEADS, LAYERS, CLASSES = 2_000, 128, 4, 4, 8
SHORTEST, LONGEST = 4, 12
"""Tokens of a request: short ones, so that a lone one leaves most of a matrix product's work to
reading the weights."""


class Classifier(nn.Module):
    """Token embeddings, an encoder, the mean over the tokens, and a score per class."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, WIDTH, padding_idx=0)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, dim_feedforward=4 * WIDTH, dropout=0.0, batch_first=True
        )
        # Nested tensors are for long padding; here they would cost more than they save.
        self.encoder = nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
        self.head = nn.Linear(WIDTH, CLASSES)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of shape (rows, classes); token 0 is padding."""
        padding = tokens == 0
        encoded = self.encoder(self.embedding(tokens), src_key_padding_mask=padding)
        text = (~padding).unsqueeze(-1)
        scores: Tensor = self.head((encoded * text).sum(1) / text.sum(1))
        return scores


def classifier() -> Classifier:
    """The model as it is served, on the device if there is one; the same weights every time."""
    torch.manual_seed(0)
    return Classifier().eval().to("cuda" if torch.cuda.is_available() else "cpu")


def requests(number: int, seed: int = 0) -> list[Tensor]:
    """So many sequences, of lengths drawn evenly."""
    drawn = torch.Generator().manual_seed(seed)
    lengths = torch.randint(SHORTEST, LONGEST + 1, (number,), generator=drawn).tolist()
    return [torch.randint(1, VOCABULARY, (length,), generator=drawn) for length in lengths]


class Served:
    """The model as the function that a batcher runs: pads, computes, returns a row per request.

    Requests come from the host, and answers are back there: that is part of the time.

    `sizes` are those of the batches so far; the worker's thread writes them.
    """

    def __init__(self, model: Classifier) -> None:
        self._model, self._device = model, next(model.parameters()).device
        self.sizes: list[int] = []

    def __call__(self, batch: Sequence[Tensor]) -> Tensor:
        """Scores, a row per request."""
        self.sizes.append(len(batch))
        tokens = pad_sequence(list(batch), batch_first=True).to(self._device)
        with torch.inference_mode():  # here: the mode belongs to the thread that computes
            scores: Tensor = self._model(tokens)
        return scores.cpu()
