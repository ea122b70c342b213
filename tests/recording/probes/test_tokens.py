"""How many tokens a mask keeps, wherever it comes from and wherever it lies."""

from collections import UserDict
from collections.abc import Callable
from typing import ClassVar

import numpy as np
import pytest
import torch
from support.live import HostFit

from trainperf.core.steps.records import EXACT_LENGTHS
from trainperf.recording.probes.tokens import TARGETS, TokensProbe


class OnDevice(TokensProbe):
    """Takes every mask for one on a device: it goes through the ring."""

    _reads_host: ClassVar[bool] = False


KINDS = pytest.mark.parametrize("kind", [TokensProbe, OnDevice])


def counted(
    *batches: object, kind: type[TokensProbe] = TokensProbe, mask: Callable | None = None
) -> tuple[HostFit, TokensProbe]:
    """A fit of one step per batch."""
    fit = HostFit(probe := kind(mask))
    for batch in batches:
        fit.micro_batch(batch)
    return fit.finish(), probe


def masks(*lengths: int, width: int = 8) -> torch.Tensor:
    """Ones up to each length."""
    return (torch.arange(width) < torch.tensor(lengths)[:, None]).long()


@KINDS
def test_the_attention_mask_is_summed(kind: type[TokensProbe]) -> None:
    """Each step has its own tokens, kept and all."""
    batches = [{"attention_mask": masks(3, 8, 1)}, {"attention_mask": masks(2)}]
    fit, probe = counted(*batches, kind=kind)

    assert fit.facts("tokens_effective") == [12, 2]
    assert fit.facts("tokens_padded") == [24, 8]
    assert probe.longest_tokens == 3 * 8 + 2, "were each as wide as its longest sequence"
    assert fit.totals.notes == {"tokens": "attention_mask"}
    assert fit.totals.reasons == {}


def test_a_mask_whose_changes_nobody_counts_is_summed_at_once() -> None:
    """Made under inference mode, before and after masks are kept for later."""
    batches: list[object] = [{"attention_mask": masks(3, 8)} for _ in range(20)]
    with torch.inference_mode():
        batches[2] = {"attention_mask": masks(1, 1)}
        batches[18] = {"attention_mask": masks(2, 2)}
    fit, _ = counted(*batches)

    assert fit.facts("tokens_effective") == [11, 11, 2, *[11] * 15, 4, 11]


LABELS = torch.tensor([[5, 6, -100, -100], [7, 8, 9, -100]])
DTYPES = (torch.bool, torch.uint8, torch.int32, torch.float32, torch.float16, torch.bfloat16)
USERS = "the user's mask function"

COUNTED: dict[str, tuple[object, Callable | None, int, int, str]] = {
    # Those that the loss leaves out do not.
    "labels": ({"input_ids": LABELS, "labels": LABELS}, None, 5, 8, "labels != -100"),
    # They know what a token is.
    "the user's first": (
        {"attention_mask": masks(8), "it": masks(1, 2)},
        lambda b: b["it"],
        3,
        16,
        USERS,
    ),
    # Mixed precision turns an attention mask into bfloat16.
    **{
        str(each): ({"attention_mask": masks(3, 5).to(each)}, None, 8, 16, "attention_mask")
        for each in DTYPES
    },
    # A packed sequence is one row; leading dimensions are a batch.
    "1-D": (object(), lambda _: torch.tensor([1, 1, 0]), 2, 3, USERS),
    "3-D": (object(), lambda _: torch.ones(2, 3, 4), 24, 24, USERS),
    "0-D": (object(), lambda _: torch.ones(()), 1, 1, USERS),
    "empty": (object(), lambda _: torch.ones(0, 5), 0, 0, USERS),
}
"""Batch and the user's function to tokens that count, all of them, and what told it."""


@KINDS
@pytest.mark.parametrize("case", COUNTED)
def test_what_tells_which_tokens_count_is_summed(case: str, kind: type[TokensProbe]) -> None:
    """Wherever it comes from, of any type and shape."""
    batch, mask, effective, padded, note = COUNTED[case]
    fit, _ = counted(batch, kind=kind, mask=mask)

    assert (fit.facts("tokens_effective"), fit.facts("tokens_padded")) == ([effective], [padded])
    assert fit.totals.notes == {"tokens": note}
    assert fit.monitor.guard.faults == {}


@pytest.mark.parametrize(
    "labels",
    [
        pytest.param([[-100, 6, -100, 8], [7, -100, -100, -100]], id="a masked language model"),
        pytest.param([[-100, -100, 8, 9], [-100, 7, 8, -100]], id="answers after their prompts"),
    ],
)
def test_labels_that_say_what_is_learned_are_no_mask(labels: list[list[int]]) -> None:
    """What they leave out is computed, and no padding: nobody is told to pad less."""
    fit, _ = counted(*({"labels": torch.tensor(labels)} for _ in range(3)))

    assert fit.facts("tokens_effective") == [None] * 3
    assert fit.totals.reasons["tokens_padded"] == TARGETS
    assert fit.totals.notes == {}


@pytest.mark.parametrize(
    "batch",
    [
        {"attention_mask": torch.ones(2, 1, 8, 8)},
        {"attention_mask": torch.ones(8)},
        {"attention_mask": [[1, 1]]},
        {"labels": torch.tensor([1, 2])},
        {},
        torch.ones(2, 8),
        [torch.ones(2, 8)],
        None,
    ],
    ids=["4-D", "1-D", "list", "classes", "empty", "tensor", "list of tensors", "none"],
)
def test_what_is_no_mask_of_tokens_is_not_taken_for_one(batch: object) -> None:
    """Not measured, and the reason says what to pass."""
    fit, _ = counted(batch, batch)

    assert fit.facts("tokens_effective") == [None, None]
    assert "tokens=lambda batch" in fit.totals.reasons["tokens_effective"]
    assert fit.totals.notes == {}
    assert fit.monitor.guard.faults == {}


@pytest.mark.parametrize(
    ("batch", "tokens"),
    [
        # It says who attends to whom, not which tokens are padding: labels stand in.
        (
            {
                "attention_mask": torch.ones(1, 1, 3, 3),
                "labels": torch.tensor([[1, 2, -100]]),
            },
            2,
        ),
        # As the `BatchEncoding` of transformers is one.
        (UserDict(attention_mask=masks(4, 4)), 8),
        # Learned sparsity: no graph is kept.
        ({"attention_mask": torch.ones(2, 3, requires_grad=True)}, 6),
    ],
    ids=["4-D mask with labels", "no dict", "mask with gradients"],
)
def test_a_mask_is_found_in_unusual_batches(batch: object, tokens: int) -> None:
    """And summed as any other."""
    fit, _ = counted(batch)

    assert fit.facts("tokens_effective") == [tokens]


@KINDS
def test_micro_batches_of_a_step_add_up(kind: type[TokensProbe]) -> None:
    """Of different widths and sizes, over the seal between them."""
    fit = HostFit(probe := kind(), log_every=1)
    for micro, lengths in enumerate([(3, 4), (8,), (1, 1, 1)]):
        fit.micro_batch({"attention_mask": masks(*lengths)}, complete=micro == 2)
    fit.micro_batch({"attention_mask": masks(2, width=50)})
    fit.finish()

    assert fit.facts("tokens_effective") == [18, 2]
    assert fit.facts("tokens_padded") == [48, 50]
    assert probe.lengths == {1: 3, 2: 1, 3: 1, 4: 1, 8: 1}


@KINDS
def test_a_flush_in_the_middle_of_a_group_counts_nothing_twice(kind: type[TokensProbe]) -> None:
    """A checkpoint wants the totals of complete steps, and the group goes on."""
    fit = HostFit(kind())
    known = []
    for number in range(6):
        fit.micro_batch({"attention_mask": masks(3)}, complete=number % 3 == 2)
        known.append(fit.monitor.settled_progress().get("tokens_effective", 0))
    fit.finish()

    assert known == [0, 0, 9, 9, 9, 18]
    assert fit.facts("tokens_effective") == [9, 9]
    assert fit.monitor.progress["tokens_effective"] == 18


@KINDS
def test_very_many_distinct_lengths_are_counted_in_bins(kind: type[TokensProbe]) -> None:
    """By their upper edge, those that came before and after, and nothing is counted twice."""
    lengths = range(EXACT_LENGTHS + 1)
    batches = [{"attention_mask": masks(*lengths, width=1024)}]
    _, probe = counted(*batches, {"attention_mask": masks(17, 20, width=32)}, kind=kind)

    assert probe.lengths == {0: 1, 16: 16, 32: 18} | dict.fromkeys(range(48, 513, 16), 16)


def test_a_mask_function_that_raises_disables_this_meter_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What was counted before stands; the rest is not measured."""

    def mask(batch: object) -> torch.Tensor:
        if batch == "bad":
            raise KeyError("mask")
        return masks(4)

    fit, _ = counted("good", "bad", "good", mask=mask)

    assert fit.facts("tokens_effective") == [4, None, None]
    assert fit.totals.faults == {"tokens": "KeyError: 'mask'"}
    assert len(caplog.records) == 1


def test_a_mask_whose_memory_is_written_again_is_summed_at_once() -> None:
    """A loader that fills the same array for every batch, behind torch's back."""
    memory = np.zeros((1, 8), dtype=np.int64)
    fit = HostFit(TokensProbe())
    for step in range(60):
        memory[:] = np.arange(8) < step % 7
        fit.micro_batch({"attention_mask": torch.from_numpy(memory)})

    assert fit.finish().facts("tokens_effective") == [step % 7 for step in range(60)]


def test_a_mask_that_was_written_to_since_is_not_counted() -> None:
    """What it was is lost, and a wrong number is worse; from then on masks are summed at once."""
    fit, before = HostFit(TokensProbe()), masks(3)
    for step in range(60):
        fit.micro_batch({"attention_mask": masks(3) if step != 32 else before})
        if step == 32:
            before.zero_()

    tokens = fit.finish().facts("tokens_effective")
    assert tokens[32] is None
    assert [*tokens[:32], *tokens[33:]] == [3] * 59


@pytest.mark.parametrize(
    ("columns", "packed"),
    [
        ({}, False),
        ({"position_ids": torch.tensor([[0, 1, 2, 0, 1, 0, 0, 0]])}, True),
        ({"position_ids": torch.tensor([[0, 1, 2, 3, 4, 0, 0, 0]])}, False),
        ({"document_ids": torch.tensor([[0, 0, 0, 1, 1, -1, -1, -1]])}, True),
        ({"document_ids": torch.tensor([[0, 0, 0, 0, 0, -1, -1, -1]])}, False),
        ({"attention_mask": torch.tensor([[1, 1, 1, 2, 2, 0, 0, 0]])}, True),
        ({"cu_seqlens": torch.tensor([0, 3, 5])}, True),
    ],
)
def test_a_batch_says_that_its_rows_are_packed(
    columns: dict[str, torch.Tensor],
    *,
    packed: bool,
) -> None:
    """Five tokens of eight, in one sequence or two; the zeros at the end are padding."""
    _, probe = counted({"attention_mask": masks(5), **columns})

    assert probe.config().get("packed_rows", False) is packed
