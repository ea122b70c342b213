"""Bench of the overhead: blocks of steps with and without trainperf, alternated in one process.

    python -m scripts.bench.overhead [--setting bare] [--only NAME] [--quick] [--json FILE]

Two fits of equal, fixed work take turns, block by block, one with the thing attached and one with
nothing.  CPU time of the training thread is read inside the loop where a block begins and ends; a
row shows the median ratio of neighbouring blocks with a 95 % bootstrap interval.  The A/A row
compares nothing with nothing: what it is off by, any other row may be off by as well.
"""

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch

from scripts.bench.alternation import Stopwatch, alternate, one_after_the_other
from scripts.bench.contenders import NOTHING, OUTSIDE, Contender
from scripts.bench.harness import (
    Cost,
    PairedEstimate,
    arguments,
    estimate,
    machine_line,
    quiet,
    spread,
    table,
    write_json,
)
from scripts.bench.loops import SETTINGS, Setting


TARGETS = {"defaults": 1.00, "bare": 1.03}
"""Design §8, for everything together; as a ratio of CPU time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OverheadRow:
    """One contender in one setting."""

    setting: str
    name: str
    base_us: float
    ratio: PairedEstimate
    quiet_ratio: float
    """Of the costs of the quietest tenth of the blocks: what others do to the machine adds only."""
    added_us: PairedEstimate
    process_added_us: PairedEstimate
    """The same for all threads of the process: work handed to another thread is not gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """How much is run."""

    fits: int
    blocks: int
    """In each fit."""
    steps: int
    """In each block."""


def measure(setting: Setting, contender: Contender, effort: Effort, scratch: Path) -> OverheadRow:
    """Run the pairs of one row; who goes first changes from fit to fit."""
    _pairs(setting, (NOTHING, contender), replace(effort, blocks=1), scratch)  # pays for imports
    pairs: list[tuple[Cost, Cost]] = []
    if not setting.takes_turns:  # short fits, and more of them
        effort = replace(effort, fits=effort.fits * effort.blocks // 4, blocks=4)
    for number in range(effort.fits):
        if number % 2:
            pairs += _pairs(setting, (NOTHING, contender), effort, scratch)
        else:
            swapped = _pairs(setting, (contender, NOTHING), effort, scratch)
            pairs += [(base, attached) for attached, base in swapped]
    return OverheadRow(
        setting=setting.name,
        name=contender.name,
        base_us=estimate([base.thread_us for base, _ in pairs]).median,
        ratio=estimate([attached.thread_us / base.thread_us for base, attached in pairs]),
        quiet_ratio=_quiet([attached for _, attached in pairs])
        / _quiet([base for base, _ in pairs]),
        added_us=estimate([attached.thread_us - base.thread_us for base, attached in pairs]),
        process_added_us=estimate(
            [attached.process_us - base.process_us for base, attached in pairs]
        ),
    )


def _quiet(costs: list[Cost]) -> float:
    return float(np.quantile([cost.thread_us for cost in costs], 0.1))


def _pairs(
    setting: Setting, contenders: tuple[Contender, Contender], effort: Effort, scratch: Path
) -> list[tuple[Cost, Cost]]:
    with tempfile.TemporaryDirectory(dir=scratch) as place, quiet():
        places = [Path(place) / str(me) for me in range(2)]

        def run(me: int, watch: Stopwatch) -> None:
            setting.run(contenders[me], watch, places[me])

        order = alternate if setting.takes_turns else one_after_the_other
        return order((partial(run, 0), partial(run, 1)), effort.blocks, effort.steps)


HEAD = ["attached", "× the loop alone", "95 % interval", "quietest", "µs a step", "interval"]
HEAD.append("all threads")


def _cells(row: OverheadRow) -> list[str]:
    quietest, threads = f"{row.quiet_ratio:.3f}", f"{row.process_added_us.median:+.1f}"
    return [row.name, *spread(row.ratio), quietest, *spread(row.added_us, "+.1f"), threads]


def run_setting(
    setting: Setting, only: Sequence[str], effort: Effort, scratch: Path
) -> list[OverheadRow]:
    """Measure and print one setting."""
    inside = [each for each in setting.contenders() if each is not OUTSIDE]
    chosen = [each for each in inside if not only or each is NOTHING or each.name in only]
    rows = [measure(setting, contender, effort, scratch) for contender in chosen]
    target = TARGETS.get(setting.name)
    print(f"\n{setting.title}: {rows[0].base_us:.0f} µs of CPU a step without anything")
    print(f"{rows[0].ratio.n} pairs of blocks of {effort.steps} steps a row; {machine_line()}")
    if target is not None:
        print(f"target for TrainPerf: at most {target:.2f} ×")
    print(f"\n{table(HEAD, list(map(_cells, rows)))}", flush=True)
    return rows


def main() -> None:
    """Measure, print, write."""
    parser = arguments(__doc__)
    names = [setting.name for setting in SETTINGS]
    parser.add_argument("--setting", choices=names, action="append", help="default: all")
    parser.add_argument("--only", action="append", default=[], help="a row; may be repeated")
    parser.add_argument("--fits", type=int, default=4, help="pairs of fits for a row")
    parser.add_argument("--blocks", type=int, default=30, help="timed blocks in a fit")
    parser.add_argument("--steps", type=int, default=50, help="steps in a block: a flush in each")
    parser.add_argument("--quick", action="store_true", help="2 fits of 4 blocks: that it works")
    given = parser.parse_args()
    torch.set_num_threads(1)
    effort = Effort(fits=given.fits, blocks=given.blocks, steps=given.steps)
    if given.quick:
        effort = replace(effort, fits=2, blocks=4)
    rows: list[OverheadRow] = []
    with tempfile.TemporaryDirectory() as scratch:
        for setting in SETTINGS:
            if setting.name in (given.setting or names):
                rows += run_setting(setting, given.only, effort, Path(scratch))
    figures = {"effort": asdict(effort), "targets": TARGETS, "rows": [asdict(row) for row in rows]}
    write_json(given.json, figures)


if __name__ == "__main__":
    main()
