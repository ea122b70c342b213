"""Bench of the watch of steps that do not end: what is planted in jobs of gloo ranks, and named.

All plants of a turn last at the same time.  Those of little memory need root and the first version
of control groups.  Healthy jobs wait for what lasts five times as long as the watch allows: with
`--limit 60`, which is what users have, for five minutes.
"""

import os
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path


sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))

from support.hangs import HEALTHY, LIMIT, NAMED, OVER, now_said, started

from scripts.bench.harness import arguments, publish
from trainperf.core.groups import grouped


PATIENCE_S = 150.0
"""Beyond what healthy jobs wait for."""
SPOKEN = "Hanging|No step has ended|A checkpoint has lasted"
RANKS = (2, 4)


def sentences(plants: Sequence[str]) -> dict[str, list[str]]:
    """Job to what was told of it once a second, where that is a hang; until it is right."""
    heard: dict[str, list[str]] = {f"{ranks}:{plant}": [] for plant in plants for ranks in RANKS}
    with tempfile.TemporaryDirectory() as folder, started(Path(folder), list(heard)) as root:
        end = time.monotonic() + PATIENCE_S + 5 * float(os.environ.get(LIMIT, "0"))
        while time.monotonic() < end and not (root / OVER).exists():
            time.sleep(1.0)
            left = [job for job, turn in heard.items() if not right(job, turn)]
            if not left:
                break
            for job in left:
                sentence = now_said(root / job)
                if re.match(SPOKEN, sentence):
                    heard[job].append(sentence)
    for group in Path("/sys/fs/cgroup/memory").glob("trainperf-*"):
        with suppress(OSError):  # one whose processes are not gone yet, or of another bench
            group.rmdir()
    return heard


def right(job: str, heard: Sequence[str]) -> bool:
    """Whether the last of the sentences is what was planted; of a healthy job it never is."""
    pattern = NAMED.get(job.partition(":")[2])
    return bool(pattern and heard and re.match(pattern, heard[-1]))


def main() -> None:
    """Plant all so often, then let healthy jobs wait for so long."""
    parser = arguments(__doc__)
    parser.add_argument("--times", type=int, default=1)
    parser.add_argument("--healthy", type=float, default=0.0, metavar="MINUTES")
    parser.add_argument("--limit", metavar="SECONDS")
    given = parser.parse_args()
    os.environ |= {LIMIT: given.limit} if given.limit else {}
    starved = ["starved"]  # alone: others would be told of it
    turns = [[plant for plant in NAMED if plant not in starved], starved] * given.times
    results = [sentences(turn) for turn in turns]
    end = time.monotonic() + 60 * given.healthy
    while time.monotonic() < end:
        results.append(sentences(HEALTHY))
    heard = grouped(pair for turn in results for pair in turn.items())
    head = ("planted", "ranks", "times", "right", "at once", "alarms", "said as a checkpoint")
    publish(given.json, head, [_row(job, turns) for job, turns in heard.items()], {"heard": heard})


def _row(job: str, turns: Sequence[Sequence[str]]) -> list[str]:
    ranks, _, plant = job.partition(":")
    if plant in NAMED:
        named = [sum(right(job, turn[:most]) for turn in turns) for most in (None, 1)]
        return [plant, ranks, str(len(turns)), *map(str, named), "", ""]
    saves = [bool(turn) and all(each.startswith("A checkpoint") for each in turn) for turn in turns]
    alarms = sum(map(bool, turns)) - sum(saves)
    return [plant, ranks, str(len(turns)), "", "", str(alarms), str(sum(saves))]


if __name__ == "__main__":
    main()
