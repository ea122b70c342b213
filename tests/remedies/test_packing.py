"""Several sequences in a row: less padding, and none sees another."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as some
from support.tolerance import assert_reordered
from torch.nn.functional import scaled_dot_product_attention

from trainperf.core.errors import ConfigError
from trainperf.remedies import first_fit, pack, same_document
from trainperf.remedies.packing import IGNORED


SEQUENCES = [[1, 2, 3], [4, 5, 6, 7, 8], [9, 10]]


@given(some.lists(some.integers(1, 64), max_size=60))
def test_every_sequence_is_in_exactly_one_row_that_holds_it(lengths: list[int]) -> None:
    """Whatever the lengths, and in no more rows than first-fit decreasing promises."""
    rows = first_fit(lengths, 64)

    assert sorted(number for row in rows for number in row) == list(range(len(lengths)))
    assert all(sum(lengths[number] for number in row) <= 64 for row in rows)
    assert len(rows) <= 11 / 9 * -(-sum(lengths) // 64) * 2 + 1


def test_rows_hold_the_sequences_as_they_are() -> None:
    """The data is unchanged: every token stands where its ids say."""
    batch = pack(SEQUENCES, 8, padding=0)
    found = [
        batch["input_ids"][row][batch["document_ids"][row] == number].tolist()
        for row in range(len(batch["input_ids"]))
        for number in range(int(batch["document_ids"][row].max()) + 1)
    ]

    assert sorted(found) == sorted(SEQUENCES)
    assert int(batch["attention_mask"].sum()) == 10
    assert batch["input_ids"].shape == (2, 8)


def test_labels_are_the_next_token_of_the_same_sequence() -> None:
    """The last one of each sequence, and padding, have none."""
    batch = pack([[1, 2, 3], [4, 5]], 6, padding=0)

    assert batch["labels"].tolist() == [[2, 3, IGNORED, 5, IGNORED, IGNORED]]
    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1, 0]]


def scores(rows: torch.Tensor) -> torch.Tensor:
    """Σ|q||k|: an error in an exponent is a relative one of the weights, at most."""
    return rows.abs() @ rows.abs().transpose(-2, -1) * rows.abs().max()


def test_attention_in_a_packed_row_is_that_of_each_sequence_alone() -> None:
    """To the digits that float32 promises: no sequence sees another."""
    torch.manual_seed(0)
    rows = torch.randn(1, 2, 8, 16)
    ids = torch.tensor([[0, 0, 0, 1, 1, 1, 1, -1]])
    together = scaled_dot_product_attention(rows, rows, rows, attn_mask=same_document(ids))

    for part in (slice(0, 3), slice(3, 7)):
        own = rows[:, :, part]
        alone = scaled_dot_product_attention(own, own, own, is_causal=True)
        # A score sums the 16 products of a head, an output the values of the sequence.
        assert_reordered(together[:, :, part], alone, terms=16 + own.shape[2], scale=scores(own))
    assert together.isfinite().all()


def test_far_fewer_tokens_are_computed() -> None:
    """Of lengths from 16 to 512 a padded batch computes 1.9 times the text, a packed one 1.05."""
    lengths = [16 * number for number in range(1, 33)]
    text = sum(lengths)
    batch = pack([[1] * length for length in lengths], 512, padding=0)

    assert batch["input_ids"].numel() <= 1.07 * text
    assert len(lengths) * max(lengths) > 1.9 * text


def test_a_sequence_without_a_token_takes_no_room() -> None:
    """It has no label either, and the others are as without it."""
    batch = pack([[], [1, 2], []], 4, padding=0)

    assert batch["input_ids"].tolist() == [[1, 2, 0, 0]]
    assert batch["labels"].tolist() == [[2, IGNORED, IGNORED, IGNORED]]


def test_a_sequence_longer_than_a_row_is_refused() -> None:
    """Cutting is for whoever knows where."""
    with pytest.raises(ConfigError, match="9 tokens: rows hold 8"):
        pack([[1] * 9], 8, padding=0)
