"""Text is cut into documents whose bytes can be accounted for."""

from dataclasses import replace
from pathlib import Path

import pytest

from recipes.gpt2.stages import PRESETS
from recipes.gpt2.text import (
    END,
    DocumentDataset,
    find_documents,
    training_order,
)


PRESET = replace(PRESETS["tiny"], context=8, documents=2)


def write(folder: Path, **files: bytes) -> Path:
    """A folder of text files."""
    for name, content in files.items():
        (folder / f"{name}.txt").write_bytes(content)
    return folder


def read(places: list) -> list[bytes]:
    """The documents' bytes, their end token taken off and seen to be there."""
    found = []
    for tokens in DocumentDataset(places):
        assert tokens[-1] == END
        found.append(bytes(tokens[:-1]))
    return found


@pytest.mark.parametrize(
    ("text", "blank_lines", "documents"),
    [
        # Also those with spaces in them and carriage returns.
        (
            b"one\ntwo\n\nthree\n  \nfour\n\r\nfive\n",
            1,
            [b"one\ntwo", b"three", b"four", b"five\n"],
        ),
        (b"a\n\nb\n\n\nc", 2, [b"a\n\nb", b"c"]),
    ],
)
def test_blank_lines_part_documents(
    text: bytes, blank_lines: int, documents: list[bytes], tmp_path: Path
) -> None:
    """As many as the preset says; fewer belong to the document."""
    folder = write(tmp_path, a=text)

    assert read(find_documents(folder, replace(PRESET, blank_lines=blank_lines))) == documents


def test_a_document_longer_than_the_context_is_cut_into_pieces_that_fit(tmp_path: Path) -> None:
    """Nothing of it is thrown away: 7 bytes and the end token make a context of 8."""
    places = find_documents(write(tmp_path, a=b"abcdefghijklmnop"), PRESET)

    assert read(places) == [b"abcdefg", b"hijklmn", b"op"]
    assert [place.tokens for place in places] == [8, 8, 3]


def test_text_tokenised_once_gives_the_same_documents(tmp_path: Path) -> None:
    """Whatever the bytes are."""
    places = find_documents(write(tmp_path, a=b"abc\xff\n\ndefghijklmnop"), PRESET)

    assert list(DocumentDataset(places, cached=True)) == list(DocumentDataset(places))


def test_files_that_are_not_text_are_passed_over(tmp_path: Path) -> None:
    """A null byte and a name that begins with a dot mark what nobody means to train on."""
    folder = write(tmp_path, a=b"text", picture=b"\x89PNG\0\0")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_bytes(b"hidden")

    assert read(find_documents(folder, PRESET)) == [b"text"]


def test_a_path_without_text_is_refused_with_its_name(tmp_path: Path) -> None:
    """An empty folder and a path that does not exist end in one line with the remedy."""
    with pytest.raises(ValueError, match="name a text file or a folder of them"):
        find_documents(tmp_path, PRESET)
    with pytest.raises(ValueError, match="nowhere"):
        find_documents(tmp_path / "nowhere", PRESET)


def test_the_order_is_the_seeds_and_repeats_a_short_text(tmp_path: Path) -> None:
    """Every stage gets the same documents in the same step; each pass is a permutation."""
    places = find_documents(write(tmp_path, a=b"a\n\nb\n\nc"), PRESET)

    order = training_order(places, PRESET, steps=4, seed=1)

    assert len(order) == 8
    assert order == training_order(places, PRESET, steps=4, seed=1)
    assert set(places) == set(order[:3]) == set(order[3:6])
    assert order != training_order(places, PRESET, steps=4, seed=2)
