"""Size of what the process beside the loop writes in days, by its own code.

    python -m scripts.bench.machine_days [--days 7] [--json FILE]

Some hundred samples of this machine's host are taken by the real sampler, one after the other.  A
second of the days is one of them, drawn at random, with its own time; devices have noise around
what an H200 was read with.  All is written by the class that the process writes with, in parts of
the usual size.  There is no clock in it, so other load on the machine does not matter.
"""

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from types import SimpleNamespace

from scripts.bench.harness import machine_line, table, write_json
from trainperf.core.artifacts.machine import DEVICE_COLUMNS
from trainperf.core.run_directory import PART_BYTES, machine_file
from trainperf.recording.machine.process import Sampler, pack
from trainperf.recording.rotating_file import RotatingFile


SAMPLED = 300
_DEVICE = {
    "sm_mhz": (1800, 60, 0),
    "power_w": (540, 60, 2),
    "energy_j": (540, 60, 2),
    "celsius": (62, 3, 0),
    "reasons": (0, 0, 0),
    "busy": (0.93, 0.05, 2),
    "others": (0, 0, 0),
    "others_busy": (0, 0, 0),
}
"""Mean, scatter and digits behind the point."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRow:
    """What so many days take."""

    devices: int
    days: float
    samples: int
    parts: int
    lines_mb: float
    """As lines, in one file."""
    disk_mb: float
    bytes_per_sample: float


def sampled(number: int) -> list[list[float | None]]:
    """What the sampler reads here, without the times."""
    given = SimpleNamespace(
        zero_ns=0, parent=1, thread=1, several=False, devices=[], rank=0, attempt=0, every_s=1.0
    )
    sampler = Sampler(given)
    return [json.loads(sampler.sample().splitlines()[0])[1:] for _ in range(number)]


def size(hosts: Sequence[list[float | None]], devices: int, days: float) -> SizeRow:
    """Write so many days."""
    noise = random.Random(1)  # noqa: S311 noise, no secret
    samples, lines_bytes = round(days * 86_400), 0
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder)
        with closing(RotatingFile(machine_file(run, 0), PART_BYTES, pack)) as file:
            for second in range(samples):
                values: list[float | None] = [second * 1_000_000_000 + noise.randrange(1_000_000)]
                values += noise.choice(hosts)
                for _ in range(devices):
                    for name in DEVICE_COLUMNS:
                        mean, scatter, digits = _DEVICE[name]
                        value = round(noise.gauss(mean, scatter), digits)
                        values.append(value if digits else int(value))
                line = json.dumps(values, separators=(",", ":")).encode() + b"\n"
                lines_bytes += len(line)
                file.write(line)
        files = list(run.iterdir())
        disk_bytes = sum(file.stat().st_size for file in files)
    return SizeRow(
        devices=devices,
        days=days,
        samples=samples,
        parts=len(files),
        lines_mb=lines_bytes / 1e6,
        disk_mb=disk_bytes / 1e6,
        bytes_per_sample=disk_bytes / samples,
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--days", type=float, default=7.0)
    parser.add_argument("--devices", type=int, nargs="*", default=[0, 8])
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    hosts = sampled(SAMPLED)
    rows = [size(hosts, devices, given.days) for devices in given.devices]
    cells = [
        (
            f"{row.devices}",
            f"{row.samples:,}",
            f"{row.lines_mb:,.1f} MB",
            f"{row.disk_mb:,.1f} MB",
            f"{row.bytes_per_sample:.0f}",
            f"{row.parts}",
        )
        for row in rows
    ]
    head = ("devices", "samples", "as lines", "on the disk", "bytes of each", "files")
    print(machine_line(), "", table(head, cells), sep="\n")
    write_json(given.json, {"rows": [asdict(row) for row in rows]})
    return 0


if __name__ == "__main__":
    sys.exit(main())
