"""What two ranks left behind, for the tests that read it."""

import json
from dataclasses import dataclass
from pathlib import Path

from support.fits import Ran, read


@dataclass
class Ranks:
    """The fits of `ranks.py`, by name."""

    root: Path

    def run(self, fit: str, rank: int) -> Ran:
        """What a rank recorded."""
        return read(self.directory(fit, rank), rank)

    def directory(self, fit: str, rank: int) -> Path:
        """Where a rank was told to record."""
        return Path(str(self.planted(fit, rank)["run"]))

    def planted(self, fit: str, rank: int) -> dict[str, object]:
        """What a rank says of itself: its sleeps, its run directory, hooks left on parameters."""
        told: dict[str, object] = json.loads((self.root / fit / f"planted-{rank}.json").read_text())
        return told
