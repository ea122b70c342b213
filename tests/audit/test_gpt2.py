"""The audit of a whole training step of GPT-2 against the textbook's 6·N·tokens + attention."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel

from trainperf.audit import audit_step
from trainperf.core.artifacts.audit import StepAudit


LAYERS, WIDTH, VOCABULARY = 2, 64, 258
ROWS, LENGTH = 2, 64
TOKENS = ROWS * LENGTH
PARAMETERS = LAYERS * 12 * WIDTH**2 + VOCABULARY * WIDTH
"""Of matrices, the head that is tied to the embedding once; positions multiply nothing."""
ATTENTION = 12 * LAYERS * LENGTH * WIDTH * TOKENS
"""Scores and weighted values, forward and backward; no causal discount."""


class Step:
    """A training step of the tiny preset, as the recipe's."""

    def __init__(self, attention: str) -> None:
        config = GPT2Config(
            n_layer=LAYERS,
            n_head=4,
            n_embd=WIDTH,
            vocab_size=VOCABULARY,
            n_positions=256,
            bos_token_id=256,
            eos_token_id=256,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            use_cache=False,
            attn_implementation=attention,  # type: ignore[call-arg]
        )
        self.model = GPT2LMHeadModel(config)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.tokens = torch.arange(TOKENS).remainder(256).view(ROWS, LENGTH)

    def __call__(self) -> None:
        """Forward, backward, update."""
        self.optimizer.zero_grad()
        logits = self.model(input_ids=self.tokens).logits
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), self.tokens.flatten())
        loss.backward()
        self.optimizer.step()

    def audit(self) -> StepAudit:
        """One step of it, not the first."""
        self()
        return audit_step(self, model=self.model)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_model_flops_are_six_per_parameter_and_token_and_the_attention(attention: str) -> None:
    """To the FLOP: the textbook counts the contractions and nothing else."""
    assert Step(attention).audit().model_flops == 6 * PARAMETERS * TOKENS + ATTENTION


def test_every_operator_of_the_step_is_known() -> None:
    """None without arithmetic, none of forward or backward without a module, but for the loss."""
    audit = Step("sdpa").audit()

    assert audit.uncounted == ()
    matmuls = [use for use in audit.operators if use.kind == "matmul"]
    assert {use.module is None for use in matmuls} == {False}
    assert {use.part for use in audit.operators} == {"forward", "backward", "optimizer"}
