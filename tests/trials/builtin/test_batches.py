"""Batches cut, sorted and packed: the same samples in fewer positions."""

from typing import Any

import pytest
import torch
from support.toy_training import only, training, why_not
from torch import Tensor

from trainperf.core.errors import ConfigError
from trainperf.remedies import pack
from trainperf.remedies.packing import lay_out
from trainperf.trials.builtin.packed_batches import packed, packed_batches
from trainperf.trials.builtin.sorted_batches import sorted_batches
from trainperf.trials.builtin.trimmed_batches import trimmed_batches
from trainperf.trials.padded import by_length, lengths, positions, trimmed


def batch(*rows: int, width: int = 10, left: bool = False) -> dict[str, Any]:
    """Rows of so many tokens, numbered from 1 by their length."""
    mask = torch.arange(width) < torch.tensor(rows)[:, None]
    mask = mask.flip(1) if left else mask
    ids = torch.where(mask, torch.tensor(rows)[:, None], 0)
    labels = torch.where(mask, ids, -100)
    return {
        "input_ids": ids,
        "attention_mask": mask.long(),
        "labels": labels,
        "number": torch.tensor(rows),
        "text": [str(row) for row in rows],
    }


@pytest.mark.parametrize("left", [False, True])
def test_a_batch_is_cut_to_its_longest_row_on_either_side(left: bool) -> None:  # noqa: FBT001 a parameter
    """All columns, and nothing but padding."""
    cut = trimmed(batch(3, 5, left=left))

    assert [cut[name].shape for name in ("input_ids", "attention_mask", "labels")] == [(2, 5)] * 3
    assert lengths(cut) == [3, 5]
    assert cut["text"] == ["3", "5"]


def test_without_a_mask_rows_end_at_their_last_label() -> None:
    """A prompt before it is not scored, and stays."""
    labels = torch.tensor([[-100, -100, 7, 8, -100, -100]])
    cut = trimmed({"input_ids": torch.arange(6)[None], "labels": labels})

    assert cut["input_ids"].tolist() == [[0, 1, 2, 3]]


def test_sorted_batches_hold_each_row_once_with_its_label_and_text() -> None:
    """From batches of different widths, each as wide as its longest row."""
    pool = by_length([batch(9, 1, width=9), batch(4, 2, width=4), batch(3, width=3)])

    assert [each["number"].tolist() for each in pool] == [[1, 2], [3, 4], [9]]
    assert [each["text"] for each in pool] == [["1", "2"], ["3", "4"], ["9"]]
    assert [each["input_ids"].shape[1] for each in pool] == [2, 4, 9]
    assert [lengths(each) for each in pool] == [[1, 2], [3, 4], [9]]
    assert all(bool((each["labels"] != 0).all()) for each in pool)


def test_what_does_not_go_by_row_keeps_rows_where_they_are() -> None:
    """Sorting would tear a batch apart."""
    with pytest.raises(ConfigError, match="'scale'"):
        by_length([{**batch(1, 2), "scale": torch.tensor(2.0)}])


def sequences(batch: dict[str, Tensor]) -> list[list[tuple[int, int, int]]]:
    """Tokens, labels and positions of each sequence, in no order."""
    chosen = []
    for row in range(len(batch["input_ids"])):
        for document in range(int(batch["document_ids"][row].max()) + 1):
            here = batch["document_ids"][row] == document
            names = ("input_ids", "labels", "position_ids")
            columns = [batch[name][row][here].tolist() for name in names]
            chosen.append(list(zip(*columns, strict=True)))
    return sorted(chosen)


def test_packed_rows_hold_the_same_sequences_with_their_labels_and_positions() -> None:
    """As `trainperf.remedies.pack` would have laid them out."""
    texts = [[1] * 7, [2] * 3, [3] * 5, [4] * 5]
    loose = lay_out([[text] for text in texts], 10, 0)
    tight = packed(loose)

    assert len(tight["input_ids"]) == 2
    assert sequences(tight) == sequences(loose) == sequences(pack(texts, 10, 0))


@pytest.mark.parametrize("offer", [trimmed_batches, sorted_batches])
def test_padding_is_cut_only_where_there_is_some(offer: Any) -> None:
    """Known once batches have come."""
    padded = training(torch.nn.Linear(2, 2), [batch(3, 5), batch(2, 6)])
    full = training(torch.nn.Linear(2, 2), [batch(10, 10), batch(10, 10)])
    tuples = training(torch.nn.Linear(2, 2), [(1, 2)])

    assert not why_not(only(offer(padded)))
    assert why_not(only(offer(full)))
    assert "tuple" in why_not(only(offer(tuples)))
    assert why_not(only(offer(training(torch.nn.Linear(2, 2)))))


def test_batches_that_do_not_say_where_a_sequence_ends_are_not_packed() -> None:
    """A model would attend across it."""
    loose = training(torch.nn.Linear(2, 2), [lay_out([[[1] * 4], [[2] * 4]], 10, 0)])
    tight = training(torch.nn.Linear(2, 2), [lay_out([[[1] * 4, [2] * 4]], 10, 0)])
    plain = training(torch.nn.Linear(2, 2), [batch(3, 5)])

    assert not why_not(only(packed_batches(loose)))
    assert "already" in why_not(only(packed_batches(tight)))
    assert "document_ids" in why_not(only(packed_batches(plain)))


def test_the_loop_gets_cut_batches_while_it_is_on_and_whole_ones_after() -> None:
    """Between two steps."""
    batches = [batch(3, 5)] * 4
    toy = training(torch.nn.Linear(2, 2), batches)
    assert toy.source is not None
    trial, loop = only(trimmed_batches(toy)), toy.source.over(iter(batches))
    widths = [next(loop)["input_ids"].shape[1]]
    trial.on()
    widths.append(next(loop)["input_ids"].shape[1])
    trial.off()
    widths.append(next(loop)["input_ids"].shape[1])

    assert widths == [10, 5, 10]
    assert positions(batches) == 80
