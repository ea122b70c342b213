"""Batches cut and sorted: the same samples in fewer positions."""

from typing import Any

import pytest
import torch
from support.toy_training import only, switched, training

from trainperf.core.errors import ConfigError
from trainperf.trials.builtin.sorted_batches import sorted_batches
from trainperf.trials.builtin.trimmed_batches import trimmed_batches
from trainperf.trials.padded import by_length, mask_of, positions, trimmed


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
    }


def lengths(batch: object) -> list[int]:
    """Tokens of each row."""
    return [int(number) for number in mask_of(batch).sum(1)]


@pytest.mark.parametrize("left", [False, True])
def test_a_batch_is_cut_to_its_longest_row_on_either_side(left: bool) -> None:  # noqa: FBT001 a parameter
    """All columns, and nothing but padding."""
    cut = trimmed({**batch(3, 5, left=left), "text": ["3", "5"]})

    assert [cut[name].shape for name in ("input_ids", "attention_mask", "labels")] == [(2, 5)] * 3
    assert lengths(cut) == [3, 5]
    assert cut["text"] == ["3", "5"]


def test_without_a_mask_rows_end_at_their_last_label() -> None:
    """A prompt before it is not scored, and stays."""
    labels = torch.tensor([[-100, -100, 7, 8, -100, -100]])
    cut = trimmed({"input_ids": torch.arange(6)[None], "labels": labels})

    assert cut["input_ids"].tolist() == [[0, 1, 2, 3]]


def test_sorted_batches_hold_each_row_once_with_its_label() -> None:
    """From batches of different widths, each as wide as its longest row."""
    pool = by_length([batch(9, 1, width=9), batch(4, 2, width=4), batch(3, width=3)])

    assert [each["number"].tolist() for each in pool] == [[1, 2], [3, 4], [9]]
    assert [each["input_ids"].shape[1] for each in pool] == [2, 4, 9]
    assert [lengths(each) for each in pool] == [[1, 2], [3, 4], [9]]
    assert all(bool((each["labels"] != 0).all()) for each in pool)


def test_what_does_not_go_by_row_keeps_rows_where_they_are() -> None:
    """Sorting would tear a batch apart."""
    with pytest.raises(ConfigError, match="'text' of its batches is no tensor of rows"):
        by_length([{**batch(1, 2), "text": ["1", "2"]}])


@pytest.mark.parametrize("offer", [trimmed_batches, sorted_batches])
def test_padding_is_cut_only_where_there_is_some(offer: Any) -> None:
    """Known once batches have come."""
    padded = training(torch.nn.Linear(2, 2), [batch(3, 5), batch(2, 6)])
    full = training(torch.nn.Linear(2, 2), [batch(10, 10), batch(10, 10)])
    tuples = training(torch.nn.Linear(2, 2), [(1, 2)])

    assert not only(offer(padded)).why_not()
    assert only(offer(full)).why_not()
    assert "tuple" in only(offer(tuples)).why_not()
    assert only(offer(training(torch.nn.Linear(2, 2)))).why_not()


def test_the_loop_gets_cut_batches_while_it_is_on_and_whole_ones_after() -> None:
    """Between two steps."""
    batches = [batch(3, 5)] * 4
    toy = training(torch.nn.Linear(2, 2), batches)
    trial, loop = only(trimmed_batches(toy)), toy.batches.over(iter(batches))

    assert switched(trial, lambda: next(loop)["input_ids"].shape[1]) == [10, 5, 10]
    assert positions(batches) == 80
