"""Packing changes where documents stand, and nothing that the model computes about them."""

import random

import pytest
import torch
from support.tolerance import assert_reordered, terms_of_transformer
from torch.nn.functional import cross_entropy

from recipes.gpt2.batches import IGNORED, Batch, Document, pack, pad
from recipes.gpt2.model import GPT2
from recipes.gpt2.stages import PRESETS, Settings
from recipes.gpt2.text import END, PAD


WIDTH = 64
LENGTHS = (64, 40, 23, 17, 9, 2, 1, 50)
KINDS = ("eager", "sdpa")
TINY = PRESETS["tiny"]
TERMS = terms_of_transformer(layers=TINY.layers, width=TINY.width, heads=TINY.heads, tokens=WIDTH)


@pytest.fixture
def documents() -> list[Document]:
    """Documents of every kind: as long as a row, of one token, and some that share rows."""
    draw = random.Random(0)  # noqa: S311 - planted tokens, not secrets
    return [[*(draw.randrange(256) for _ in range(length - 1)), END] for length in LENGTHS]


def model(attention: str) -> GPT2:
    """A model whose attention matters: with GPT-2's small initial weights it hardly would."""
    torch.manual_seed(0)
    network = GPT2(TINY, Settings(attention=attention)).eval()
    with torch.no_grad():
        for weight in network.parameters():
            weight.mul_(5)
    return network


def alone(network: GPT2, document: Document) -> torch.Tensor:
    """Logits of a document that has a batch to itself."""
    return network.logits(pad([document]))[0]


def head_scale(network: GPT2, batch: Batch) -> torch.Tensor:
    """Σ|x||y| of each logit: the magnitudes that the last matrix sums."""
    states = network.network.transformer(
        input_ids=batch["input_ids"],
        attention_mask=network._attention_mask(batch),
        position_ids=batch.get("position_ids"),
    ).last_hidden_state
    return states.abs() @ network.network.lm_head.weight.abs().T


def pieces(batch: Batch) -> list[tuple[int, slice]]:
    """Row and columns of each document of a packed batch."""
    places = []
    for row, ids in enumerate(batch["document_ids"]):
        for number in range(int(ids.max()) + 1):
            columns = (ids == number).nonzero().flatten()
            places.append((row, slice(int(columns[0]), int(columns[-1]) + 1)))
    return places


@pytest.mark.parametrize("attention", KINDS)
@torch.no_grad()
def test_a_packed_document_gets_the_logits_it_gets_alone(
    attention: str, documents: list[Document]
) -> None:
    """No token sees another document, and positions start again at 0."""
    network = model(attention)
    batch = pack(documents, WIDTH)
    logits = network.logits(batch)

    places = pieces(batch)

    assert len(places) == len(documents)
    assert len(places) > len(logits), "nothing shares a row: the test would prove nothing"
    scale = head_scale(network, batch)
    for row, columns in places:
        document = batch["input_ids"][row, columns].tolist()
        assert_reordered(logits[row, columns], alone(network, document), terms=TERMS, scale=scale)


@pytest.mark.parametrize("attention", KINDS)
def test_packed_and_padded_have_the_same_loss_and_gradient(
    attention: str, documents: list[Document]
) -> None:
    """The same documents in a step give the same update, so the stages' losses can be compared."""
    results = []
    for batch in (pad(documents), pack(documents, WIDTH)):
        network = model(attention)
        logits = network.logits(batch).flatten(0, 1)
        loss = cross_entropy(logits, batch["labels"].flatten(), ignore_index=IGNORED)
        loss.backward()
        results.append((loss.detach(), network.network.transformer.wte.weight.grad))

    (padded_loss, padded_gradient), (packed_loss, packed_gradient) = results
    tokens = sum(LENGTHS)

    assert_reordered(packed_loss, padded_loss, terms=TERMS + tokens, scale=padded_loss)
    assert_reordered(
        packed_gradient, padded_gradient, terms=2 * TERMS + tokens, scale=padded_gradient
    )


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
