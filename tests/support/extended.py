"""A copy of the package in a temporary folder, to which a test adds one file and one line."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path


ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class ExtendedPackage:
    """The copy, as a user's checkout would be."""

    folder: Path
    """What holds the package, for PYTHONPATH."""

    @classmethod
    def copied_to(cls, folder: Path) -> "ExtendedPackage":
        """The package as it is now, below *folder*."""
        shutil.copytree(ROOT / "trainperf", folder / "trainperf")
        return cls(folder)

    def add_file(self, path: str, source: str) -> None:
        """One file more; *path* is relative to the package."""
        target = self.folder / "trainperf" / path
        assert not target.exists()
        target.write_text(source, encoding="utf-8")

    def add_line(self, path: str, line: str, *, after: str) -> None:
        """One line more, after the only line that ends with *after*."""
        target = self.folder / "trainperf" / path
        before = target.read_text(encoding="utf-8").splitlines()
        (place,) = (at for at, text in enumerate(before) if text.strip() == after)
        indent = before[place][: len(before[place]) - len(before[place].lstrip())]
        before.insert(place + 1, indent + line)
        target.write_text("\n".join(before) + "\n", encoding="utf-8")

    def run(self, program: str, *arguments: object) -> str:
        """What *program* prints in a process that imports the copy."""
        paths = os.pathsep.join(map(str, (self.folder, ROOT, ROOT / "tests")))
        result = subprocess.run(
            [sys.executable, "-c", program, *map(str, arguments)],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=False,
        )
        assert result.returncode == 0, result.stderr
        return result.stdout
