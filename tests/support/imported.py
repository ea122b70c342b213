"""Runs from logs: written to disk as people have them, and imported."""

from pathlib import Path

from trainperf.importers import recognise
from trainperf.importers.writing import write_run


def imported(folder: Path, *logs: str | bytes, name: str = "train.log") -> Path:
    """The run directory that logs become, each a file of that name."""
    files = []
    for place, log in enumerate(logs):
        files.append(folder / f"{place}" / name)
        files[-1].parent.mkdir(parents=True, exist_ok=True)
        files[-1].write_bytes(log if isinstance(log, bytes) else log.encode())
    return write_run(recognise(files), files, folder)
