"""Loops and models in the style of well-known repositories, for the scripts nobody tunes on."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from trainperf.loop import LoopMonitor


VOCABULARY, BLOCK, WIDTH, HEADS = 128, 64, 64, 4


class Gpt(nn.Module):
    """One block of a small GPT, whose parts a script may write in its own way.

    Args:
        attend: From queries, keys and values to what the heads mix.
        activate: Between the two layers of the perceptron.
        block: Tokens of a row.
    """

    def __init__(
        self,
        attend: Callable[[Tensor, Tensor, Tensor], Tensor] | None = None,
        activate: Callable[[Tensor], Tensor] = functional.gelu,
        block: int = BLOCK,
    ) -> None:
        super().__init__()
        self._attend = attend or causal
        self._activate = activate
        self.wte, self.wpe = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(block, WIDTH)
        self.norm, self.c_attn = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 3 * WIDTH)
        self.c_fc, self.c_proj = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.lm_head = nn.Linear(WIDTH, VOCABULARY)

    def forward(self, tokens: Tensor) -> Tensor:
        """Scores of the next token at every position."""
        hidden = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1]))
        parts = self.c_attn(self.norm(hidden)).split(WIDTH, dim=2)
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in parts)
        hidden = hidden + self._attend(q, k, v).transpose(1, 2).flatten(2)
        hidden = hidden + self.c_proj(self._activate(self.c_fc(hidden)))
        scores: Tensor = self.lm_head(hidden)
        return scores


def causal(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    """As nanoGPT does where torch has it."""
    return functional.scaled_dot_product_attention(q, k, v, is_causal=True)


def get_batch(rows: int = 8, block: int = BLOCK) -> tuple[Tensor, Tensor]:
    """Tokens and the ones that follow them."""
    tokens = torch.randint(0, VOCABULARY, (rows, block + 1))
    return tokens[:, :-1], tokens[:, 1:]


def nano(
    out: Path,
    model: nn.Module,
    batches: Iterable[tuple[Tensor, Tensor]],
    *,
    after: Callable[[int, Tensor, nn.Module], None] = lambda *_: None,
    optimizer: Callable[[Any], torch.optim.Optimizer] | None = None,
    before_update: Callable[[nn.Module], None] = lambda _: None,
) -> None:
    """A plain loop without brackets, one step of it audited.

    Args:
        out: Where the run is written.
        model: From tokens or rows to scores of classes.
        batches: What it is trained on.
        after: Called with the number of the step, its loss and the model.
        optimizer: Of the parameters; a fused AdamW by default.
        before_update: Called with the model when its gradients are there.
    """
    make = optimizer or (lambda own: torch.optim.AdamW(own, 1e-4, fused=True))
    update = make(model.parameters())
    monitor = LoopMonitor(out, report=False, audit_at=12).watch(model, update)
    with monitor:
        for number, (inputs, targets) in enumerate(monitor.batches(batches)):
            scores = model(inputs)
            loss = functional.cross_entropy(scores.flatten(0, -2), targets.flatten())
            update.zero_grad(set_to_none=True)
            loss.backward()  # type: ignore[no-untyped-call]
            before_update(model)
            update.step()
            after(number, loss, model)
            monitor.end_step(loss)
