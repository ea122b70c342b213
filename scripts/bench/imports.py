"""Bench of `trainperf import`: logs of a million steps, each a real log repeated.

    python -m scripts.bench.imports [--formats NAME …] [--steps N] [--json FILE]

A stretch of what a framework's own code wrote (`tests/importers/real`) is repeated with later times
and higher numbers until there are so many steps; the installed command makes a run directory of it,
with its report and its page.
"""

import gzip
import json
import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from scripts.bench.harness import arguments, publish, watched


REAL = Path(__file__).parents[2] / "tests" / "importers" / "real"
STEPS = 1_000_000
TARGETS = {"import_s": 60.0}
"""For a million steps."""


@dataclass(frozen=True, slots=True)
class Repeated:
    """A log as long as wanted: what stands before, a stretch that is repeated, and what ends it."""

    head: str
    body: str
    """With a hole `%d` for each number that differs from copy to copy."""
    holes: Sequence[tuple[int, int]]
    """The number in the first copy, and by how much it is higher in the next."""
    steps: int
    """In each copy."""
    tail: str = ""

    def write(self, path: Path, steps: int) -> None:
        """Write at least so many steps."""
        with path.open("w", encoding="utf-8") as file:
            file.write(self.head)
            for copy in range(-(-steps // self.steps)):
                file.write(self.body % tuple(base + copy * more for base, more in self.holes))
            file.write(self.tail)


def _repeated(
    head: str, body: str, steps: int, moved: Sequence[tuple[str, int]], tail: str = ""
) -> Repeated:
    """A log whose *moved* numbers, each the group of a pattern, grow from copy to copy."""
    holes: list[tuple[int, int, int]] = []
    for pattern, more in moved:
        matches = re.finditer(pattern, body)
        holes += [(match.start(1), int(match[1]), more) for match in matches]
    holes.sort()
    pieces, end = [], 0
    for at, number, _ in holes:
        pieces += [body[end:at].replace("%", "%%"), "%d"]
        end = at + len(str(number))
    pieces.append(body[end:].replace("%", "%%"))
    return Repeated(head, "".join(pieces), [(n, more) for _, n, more in holes], steps, tail)


def torchtitan() -> tuple[str, Repeated]:
    """Ten steps of rank 0; each line has its own time of day."""
    lines = gzip.decompress((REAL / "torchtitan-rank0.jsonl.gz").read_bytes()).decode()
    head, body = _between(lines, '"log_type_name": "step_start"', 4, 14)
    times = [int(time) for time in re.findall(r'"time_us": (\d+)', body)]
    return "jsonl", _repeated(head, body, 10, [(r'"time_us": (\d+)', times[-1] - times[0] + 1000)])


def megatron() -> tuple[str, Repeated]:
    """An interval of one: ten lines with their tables."""
    head, body = _between((REAL / "megatron.log").read_text(), " iteration  ", 2, 6)
    # An interval of five stands for five iterations; here each line is of one.
    number = iter(range(1, 1000))
    body = re.sub(r"iteration +\d+/", lambda _: f"iteration {next(number):8d}/", body)
    moved = [(r"iteration +(\d+)/", 4), (r"consumed samples: +(\d+)", 160)]
    return "log", _repeated(head.partition(" [")[0], body, 4, moved)


def deepspeed() -> tuple[str, Repeated]:
    """Nothing in its lines differs from step to step."""
    text = (REAL / "deepspeed.log").read_text()
    return "log", _repeated("", text, text.count("| fwd: "), [])


def huggingface(path: Path, steps: int) -> None:
    """A loss every second step, each with its time."""
    state = json.loads((REAL / "trainer_state-tokens.json").read_bytes())
    entries = [entry for entry in state["log_history"] if "loss" in entry]
    last = entries[-1]
    history = []
    for copy in range(-(-steps // last["step"])):
        for entry in entries:
            moved = {
                name: entry[name] + copy * last[name]
                for name in ("step", "train_runtime", "num_input_tokens_seen")
            }
            history.append({**entry, **moved})
    state |= {"log_history": history, "global_step": history[-1]["step"]}
    path.write_text(json.dumps(state, indent=2, sort_keys=True) + "\n")


def _between(text: str, mark: str, first: int, last: int) -> tuple[str, str]:
    """What stands before the lines with a mark number *first* to *last*, and from there to it."""
    lines = text.splitlines(keepends=True)
    marked = [place for place, line in enumerate(lines) if mark in line]
    return "".join(lines[: marked[0]]), "".join(lines[marked[first] : marked[last]])


REPEATED: dict[str, Callable[[], tuple[str, Repeated]]] = {
    "torchtitan": torchtitan,
    "megatron": megatron,
    "deepspeed": deepspeed,
}
FORMATS = (*REPEATED, "huggingface")


def written(name: str, steps: int, folder: Path) -> Path:
    """The log of so many steps."""
    if name == "huggingface":
        path = folder / "huggingface.json"
        huggingface(path, steps)
        return path
    suffix, log = REPEATED[name]()
    path = folder / f"{name}.{suffix}"
    log.write(path, steps)
    return path


def main() -> None:
    """Write, import, print."""
    parser = arguments(__doc__)
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=FORMATS)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--keep", type=Path, help="where the logs are written to, or already are")
    given = parser.parse_args()
    rows: list[dict[str, object]] = []
    for name in given.formats:
        with tempfile.TemporaryDirectory() as temporary:
            folder = given.keep or Path(temporary)
            kept = next(iter(folder.glob(f"{name}.*")), None) if given.keep else None
            log = kept or written(name, given.steps, folder)
            out = Path(temporary) / "run"
            command = [sys.executable, "-m", "trainperf", "import", str(log), "--out", str(out)]
            took = watched(command)
            steps = json.loads(next(out.rglob("summary.json")).read_bytes())["run"]["steps"]
            size_mb = round(log.stat().st_size / 1e6, 1)
        row: dict[str, object] = {"format": name, "steps": steps, "log_mb": size_mb}
        row |= {"import_s": round(took.seconds, 2), "process_mb": round(took.process_mb, 1)}
        rows.append(row)
        print(row, flush=True)
    cells = [[str(value) for value in row.values()] for row in rows]
    publish(given.json, list(rows[0]), cells, {"rows": rows, "targets": TARGETS})


if __name__ == "__main__":
    main()
