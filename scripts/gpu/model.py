"""GPT-2 training step that is audited and traced, of the published size or a toy size."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import GPT2Config, GPT2LMHeadModel


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """The model and its batch."""

    layers: int
    heads: int
    width: int
    vocabulary: int
    rows: int
    length: int

    @property
    def tokens(self) -> int:
        """Of a step."""
        return self.rows * self.length

    @property
    def textbook_flops(self) -> int:
        """6·N·tokens + attention, N the matrices with the tied head once; no causal discount."""
        parameters = self.layers * 12 * self.width**2 + self.vocabulary * self.width
        attention = 12 * self.layers * self.length * self.width * self.tokens
        return 6 * parameters * self.tokens + attention


SIZES: dict[str, Size] = {
    "small": Size(layers=12, heads=12, width=768, vocabulary=50257, rows=8, length=1024),
    "toy": Size(layers=2, heads=4, width=64, vocabulary=258, rows=2, length=64),
}
"""`small` is the recipe's model of 124 M parameters; eight rows fit in 40 GB in fp32, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """How the step is done."""

    name: str
    attention: str
    """`attn_implementation` of transformers."""
    bf16: bool
    """Whether forward runs under autocast."""


VARIANTS: tuple[Variant, ...] = (
    Variant(name="fp32, eager attention", attention="eager", bf16=False),
    Variant(name="bf16, fused attention", attention="sdpa", bf16=True),
)


class Step:
    """One training step: called again and again, it trains on the same batch."""

    def __init__(self, size: Size, variant: Variant, device: str) -> None:
        config = GPT2Config(
            n_layer=size.layers,
            n_head=size.heads,
            n_embd=size.width,
            vocab_size=size.vocabulary,
            n_positions=size.length,
            bos_token_id=0,
            eos_token_id=0,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            use_cache=False,
            attn_implementation=variant.attention,  # type: ignore[call-arg]
        )
        torch.manual_seed(0)
        self.variant, self.device = variant, device
        self.model = GPT2LMHeadModel(config).to(device)  # type: ignore[arg-type]
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        drawn = torch.randint(size.vocabulary, (size.rows, size.length))
        self.batch = drawn.pin_memory() if device == "cuda" else drawn
        self.tokens = drawn.to(device)

    def __call__(self) -> None:
        """Forward, backward, update."""
        self.loss(self.tokens).backward()  # type: ignore[no-untyped-call]
        self.update()

    def loss(self, tokens: Tensor) -> Tensor:
        """Mean cross-entropy of the next token."""
        with torch.autocast(self.device, dtype=torch.bfloat16, enabled=self.variant.bf16):
            logits = self.model(input_ids=tokens).logits
            return cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())

    def update(self) -> None:
        """Step the optimizer and let the gradients go."""
        self.optimizer.step()
        self.optimizer.zero_grad()


def drain(device: str) -> None:
    """Wait until the device has done what it was given."""
    if device == "cuda":
        torch.cuda.synchronize()
