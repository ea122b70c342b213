"""Fused attention and kept activations, switched on a small model of Hugging Face."""

import warnings

import pytest
import torch
from support.toy_training import everything, only, switched, training
from torch import nn

from trainperf.trials.builtin.attention import attention
from trainperf.trials.builtin.attention_backend import ORDER, attention_backend
from trainperf.trials.builtin.no_checkpointing import no_checkpointing


transformers = pytest.importorskip("transformers")


class Around(nn.Module):
    """A module with such a model inside, as a LightningModule has it."""

    def __init__(self, implementation: str = "eager") -> None:
        super().__init__()
        config = transformers.GPT2Config(
            n_layer=2, n_head=2, n_embd=8, n_positions=16, vocab_size=20, use_cache=False
        )
        config._attn_implementation = implementation
        self.model = transformers.GPT2LMHeadModel(config)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """The loss of the next tokens."""
        return self.model(input_ids=ids, labels=ids).loss


def test_the_inner_model_computes_fused_attention_while_it_is_on() -> None:
    """Seen by the operators that a forward runs."""
    toy = training(Around())
    trial = only(attention(toy))
    before = everything(toy)
    ran = switched(trial, lambda: _operators(toy.module))

    assert ["scaled_dot_product" in names for names in ran] == [False, True, False]
    assert everything(toy) == before


def test_a_model_that_has_it_or_cannot_choose_says_so() -> None:
    """Attention in the user's own code is not switched."""
    assert only(attention(training(Around("sdpa")))).why_not() == "it is sdpa already"
    assert "set_attn_implementation" in only(attention(training())).why_not()


def test_activations_are_computed_once_while_checkpointing_is_off() -> None:
    """And twice afterwards, by the same functions as before."""
    toy = training(Around())
    assert only(no_checkpointing(toy)).why_not()
    model = toy.module.model
    with warnings.catch_warnings():  # the newer name is not in every version
        warnings.simplefilter("ignore", FutureWarning)
        model.gradient_checkpointing_enable({"use_reentrant": False})
    functions = [getattr(part, "_gradient_checkpointing_func", None) for part in model.modules()]

    assert switched(only(no_checkpointing(toy)), lambda: _forwards(toy.module)) == [2, 1, 2]
    after = [getattr(part, "_gradient_checkpointing_func", None) for part in model.modules()]
    assert after == functions


def test_the_order_of_kernels_is_changed_and_put_back() -> None:
    """It can be set where no GPU is, and is tried only on one."""
    trial = only(attention_backend(training()))
    before, during, after = switched(trial, torch._C._get_sdp_priority_order)

    assert during[: len(ORDER)] == [int(each) for each in ORDER]
    assert after == before != during
    assert trial.why_not() == "no cuDNN on cpu"


def _operators(module: nn.Module) -> str:
    with torch.profiler.profile() as profile:
        module(torch.arange(8)[None])
    return " ".join(event.key for event in profile.key_averages())


def _forwards(module: nn.Module) -> int:
    """Times that a layer computes its forward in one forward and backward."""
    calls: list[int] = []
    layer = module.model.transformer.h[0].ln_1  # type: ignore[union-attr]
    hook = layer.register_forward_hook(lambda *_: calls.append(1))  # type: ignore[union-attr,operator]
    module(torch.arange(8)[None]).backward()
    hook.remove()  # type: ignore[union-attr]
    return len(calls)
