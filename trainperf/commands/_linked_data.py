"""Data that git does not track, in a checkout: small files are copied, larger ones linked.

Folders are made anew, so what a training adds is written into the checkout, and so is what it
writes over, but for large files: those are the user's own, and a change of one is noticed.
"""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


MOST_FILES = 4000
"""A folder that has more, with those before it, is linked as a whole."""

COPIED_BYTES = 1 << 16
"""Up to so large a file is copied: all copies together have 256 MiB at most."""

Stamp = tuple[int, int]
"""Size, and time of the last change in ns."""


@dataclass(slots=True, kw_only=True)
class LinkedData:
    """What was brought into a checkout, and how what was linked was then."""

    stamps: dict[Path, Stamp] = field(default_factory=dict)
    files: int = 0

    @classmethod
    def into(cls, checkout: Path, root: Path, paths: Sequence[Path]) -> "LinkedData":
        """Bring the untracked *paths* of *root*, except where the checkout has something itself."""
        data = cls()
        pending = list(paths)
        while pending:
            path = pending.pop(0)
            source, target = root / path, checkout / path
            if target.is_symlink() or not source.exists():
                continue
            names = _names(source) if _is_folder(source) else None
            if names is not None and data.files + len(pending) + len(names) <= MOST_FILES:
                target.mkdir(parents=True, exist_ok=True)
                pending += [path / name for name in names]
            elif not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                data.bring(source, target)
        return data

    def bring(self, source: Path, target: Path) -> None:
        """Copy a small file, link anything else."""
        self.files += 1
        stat = source.stat()
        if stat.st_size <= COPIED_BYTES and source.is_file():
            shutil.copy2(source, target)
            return
        target.symlink_to(source)
        if source.is_file():
            self.stamps[source] = _stamp(source)

    def changed(self) -> list[Path]:
        """Files of the user that are not as they were when they were linked."""
        return [path for path, stamp in self.stamps.items() if _stamp(path) != stamp]


def _is_folder(path: Path) -> bool:
    """Whether its files are brought one by one; an environment has thousands, and nobody's data."""
    return path.is_dir() and not path.is_symlink() and not (path / "pyvenv.cfg").is_file()


def _names(folder: Path) -> list[str]:
    with os.scandir(folder) as entries:
        return sorted(entry.name for entry in entries)


def _stamp(path: Path) -> Stamp:
    try:
        stat = path.stat()
    except FileNotFoundError:
        return (-1, 0)
    return (stat.st_size, stat.st_mtime_ns)
