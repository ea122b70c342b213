"""What does measuring cost?  Blocks of steps with and without us, alternated in one process.

    python scripts/bench_overhead.py [--setting bare] [--only NAME] [--quick] [--json FILE]

Each row is many pairs of fits of equal, fixed work: one with the thing attached, one with nothing,
in alternating order.  CPU time of the training thread is read inside the loop at two fixed steps;
the row shows the median of the pairs' ratios with a 95 % bootstrap interval.  The A/A row compares
nothing with nothing: what it is off by, any other row may be off by as well.
"""

import argparse
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from _bench import Estimate, estimate, machine_line, table, write_json
from _contenders import NOTHING, Contender
from _loops import SETTINGS, Cost, Setting


TARGETS = {"defaults": 1.00, "bare": 1.03}
"""Design §8, for everything together; as a ratio of CPU time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One contender in one setting."""

    setting: str
    name: str
    base_us: float
    ratio: Estimate
    added_us: Estimate
    process_added_us: Estimate
    """The same for all threads of the process: work handed to another thread is not gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is run."""

    pairs: int
    steps: int


def measure(setting: Setting, contender: Contender, effort: Effort, scratch: Path) -> Row:
    """Run the pairs of one row; the first pair pays for imports and is thrown away."""
    pairs: list[tuple[Cost, Cost]] = []
    for number in range(-1, effort.pairs):
        order = (NOTHING, contender) if number % 2 else (contender, NOTHING)
        costs = [_block(setting, one, effort.steps, scratch) for one in order]
        base, attached = costs if number % 2 else reversed(costs)
        if number >= 0:
            pairs.append((base, attached))
    return Row(
        setting=setting.name,
        name=contender.name,
        base_us=estimate([base.thread_us for base, _ in pairs]).median,
        ratio=estimate([attached.thread_us / base.thread_us for base, attached in pairs]),
        added_us=estimate([attached.thread_us - base.thread_us for base, attached in pairs]),
        process_added_us=estimate(
            [attached.process_us - base.process_us for base, attached in pairs]
        ),
    )


def _block(setting: Setting, contender: Contender, steps: int, scratch: Path) -> Cost:
    with tempfile.TemporaryDirectory(dir=scratch) as place:
        return setting.block(contender, steps, Path(place))


def shown(rows: Sequence[Row]) -> str:
    """The rows of one setting as a table."""
    return table(
        ["attached", "× the loop alone", "95 % interval", "µs a step", "interval", "all threads"],
        [
            [
                row.name,
                f"{row.ratio.median:.3f}",
                f"{row.ratio.low:.3f} to {row.ratio.high:.3f}",
                f"{row.added_us.median:+.1f}",
                f"{row.added_us.low:+.1f} to {row.added_us.high:+.1f}",
                f"{row.process_added_us.median:+.1f}",
            ]
            for row in rows
        ],
    )


def run_setting(setting: Setting, only: Sequence[str], effort: Effort, scratch: Path) -> list[Row]:
    """Measure and print one setting."""
    chosen = [c for c in setting.contenders() if not only or c is NOTHING or c.name in only]
    rows = [measure(setting, contender, effort, scratch) for contender in chosen]
    target = TARGETS.get(setting.name)
    print(f"\n{setting.title}: {rows[0].base_us:.0f} µs of CPU a step without anything")
    print(f"{effort.pairs} pairs of {effort.steps} steps a row; {machine_line()}")
    if target is not None:
        print(f"target for TrainPerf: at most {target:.2f} ×")
    print(f"\n{shown(rows)}", flush=True)
    return rows


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [setting.name for setting in SETTINGS]
    parser.add_argument("--setting", choices=names, action="append", help="default: all")
    parser.add_argument("--only", action="append", default=[], help="a row; may be repeated")
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--steps", type=int, default=100, help="timed steps in a block")
    parser.add_argument("--quick", action="store_true", help="6 pairs: shows that it works")
    parser.add_argument("--json", type=Path, default=None, help="also write the figures here")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    effort = Effort(pairs=6 if arguments.quick else arguments.pairs, steps=arguments.steps)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory() as scratch:
        for setting in SETTINGS:
            if setting.name in (arguments.setting or names):
                rows += run_setting(setting, arguments.only, effort, Path(scratch))
    figures = {"effort": asdict(effort), "targets": TARGETS, "rows": [asdict(row) for row in rows]}
    write_json(arguments.json, figures)


if __name__ == "__main__":
    main()
