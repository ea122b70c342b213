"""Training text: files cut into byte-level documents of very different length."""

import random
import re
import sysconfig
from dataclasses import dataclass
from pathlib import Path

from torch.utils.data import Dataset

from recipes.gpt2.stages import Preset


END = 256
"""The token after a document's last byte; the 256 byte values are tokens of their own."""
PAD = 257
"""The token that fills a row; the attention mask is 0 there and no label points to it."""


@dataclass(frozen=True, slots=True)
class DocumentSpan:
    """A document: a slice of a file's tokens."""

    path: Path
    start: int
    stop: int

    @property
    def tokens(self) -> int:
        """Its length, the end token included."""
        return self.stop - self.start + 1


def standard_library() -> Path:
    """The folder of Python's own source files: real text that every machine has."""
    return Path(sysconfig.get_path("stdlib"))


def find_documents(text: Path | None, preset: Preset) -> list[DocumentSpan]:
    """Cut a file, or the files of a folder, into documents; by default the standard library.

    A document ends at the preset's number of blank lines.  One that is longer than the context is
    cut into pieces that fit, and each piece counts as a document.

    Raises:
        ValueError: there is no text at that path.
    """
    files = [text] if text and text.is_file() else _files(text)
    blank = re.compile(rb"\n(?:[ \t]*\r?\n){%d,}" % preset.blank_lines)
    places = [place for path in files for place in _places(path, blank, preset.context - 1)]
    if not places:
        raise ValueError(f"text={text}: no text in it; name a text file or a folder of them")
    return places


def training_order(
    places: list[DocumentSpan], preset: Preset, steps: int, seed: int
) -> list[DocumentSpan]:
    """The documents of a whole run, in order: the same for every stage that is given this seed.

    Short texts repeat, each time in another order.
    """
    needed = steps * preset.documents
    shuffle = random.Random(seed)  # noqa: S311 - an order, not a secret
    order: list[DocumentSpan] = []
    while len(order) < needed:
        order += shuffle.sample(places, len(places))
    return order[:needed]


class DocumentDataset(Dataset[list[int]]):
    """Tokenised documents in training order.

    Args:
        order: The documents.
        cached: Whether they are tokenised once, before the first is asked for.  Else the file is
            read and tokenised each time one of its documents is asked for, as a first script does
            it; the cost is real and the report shows it as data wait.
    """

    def __init__(self, order: list[DocumentSpan], *, cached: bool = False) -> None:
        self._order = order
        self._cached: list[list[int]] | None = None
        if cached:
            texts = {path: path.read_bytes() for path in {place.path for place in order}}
            self._cached = [_tokens(place, texts[place.path]) for place in order]

    def __len__(self) -> int:
        return len(self._order)

    def __getitem__(self, number: int) -> list[int]:
        if self._cached is not None:
            return self._cached[number]
        place = self._order[number]
        return [*tokenise(place.path.read_bytes())[place.start : place.stop], END]


def _tokens(place: DocumentSpan, text: bytes) -> list[int]:
    return [*tokenise(text[place.start : place.stop]), END]


_TOKENS = {chr(byte): byte for byte in range(256)}


def tokenise(text: bytes) -> list[int]:
    """One token per byte: nothing to download, any text, and a length known before reading.

    Looked up character by character, as the first tokeniser of every tutorial does it.
    """
    return [_TOKENS[character] for character in text.decode("latin-1")]


def _files(folder: Path | None) -> list[Path]:
    """Visible files below a folder; of the standard library only its own modules.

    Below it are the test suite and everything that was ever installed: another text on every
    machine.
    """
    if folder is None:
        return sorted(standard_library().glob("*.py"))
    below = (path.relative_to(folder) for path in folder.rglob("*"))
    visible = (path for path in below if not any(part.startswith(".") for part in path.parts))
    return sorted(folder / path for path in visible if (folder / path).is_file())


def _places(path: Path, blank: re.Pattern[bytes], longest: int) -> list[DocumentSpan]:
    text = path.read_bytes()
    # A null byte does not occur in text; pictures and archives in the folder are passed over.
    if b"\0" in text:
        return []
    ends = [*(match.start() for match in blank.finditer(text)), len(text)]
    starts = [0, *(match.end() for match in blank.finditer(text))]
    return [
        DocumentSpan(path, start, min(start + longest, end))
        for begin, end in zip(starts, ends, strict=True)
        if text[begin:end].strip()
        for start in range(begin, end, longest)
    ]
