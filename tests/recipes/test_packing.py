"""Packing changes where documents stand, and nothing that the model computes about them."""

import random

import pytest
import torch

from recipes.gpt2.batches import IGNORED, Batch, Document, pack, pad
from recipes.gpt2.text import END, PAD


WIDTH = 64
LENGTHS = (64, 40, 23, 17, 9, 2, 1, 50)


@pytest.fixture
def documents() -> list[Document]:
    """Documents of every kind: as long as a row, of one token, and some that share rows."""
    draw = random.Random(0)  # noqa: S311 - planted tokens, not secrets
    return [[*(draw.randrange(256) for _ in range(length - 1)), END] for length in LENGTHS]


def pieces(batch: Batch) -> list[tuple[int, slice]]:
    """Row and columns of each document of a packed batch."""
    places = []
    for row, ids in enumerate(batch["document_ids"]):
        for number in range(int(ids.max()) + 1):
            columns = (ids == number).nonzero().flatten()
            places.append((row, slice(int(columns[0]), int(columns[-1]) + 1)))
    return places


@pytest.mark.parametrize("build", [pad, lambda documents: pack(documents, WIDTH)])
def test_a_label_is_the_next_token_of_the_same_document(
    build: object, documents: list[Document]
) -> None:
    """The end token has no label, so that no document predicts the start of the next one."""
    assert callable(build)
    batch = build(documents)
    tokens, labels = batch["input_ids"], batch["labels"]

    expected = torch.roll(tokens, -1, dims=1)
    expected[(tokens == END) | (tokens == PAD)] = IGNORED

    assert torch.equal(expected, labels)


def test_packing_keeps_every_token(documents: list[Document]) -> None:
    """The same multiset of documents, and as many tokens under the mask as padded."""
    padded, packed = pad(documents), pack(documents, WIDTH)

    found = [packed["input_ids"][row, columns].tolist() for row, columns in pieces(packed)]

    assert sorted(documents) == sorted(found)
    assert sum(LENGTHS) == int(padded["attention_mask"].sum())
    assert sum(LENGTHS) == int(packed["attention_mask"].sum())
    assert bool(((packed["input_ids"] == PAD) == (packed["attention_mask"] == 0)).all())


def test_positions_and_document_numbers_start_again() -> None:
    """Positions are counted within the document, documents within the row; padding is -1."""
    batch = pack([[7, 8, 9], [5, 6]], 6)

    assert batch["position_ids"].tolist() == [[0, 1, 2, 0, 1, 0]]
    assert batch["document_ids"].tolist() == [[0, 0, 0, 1, 1, -1]]
