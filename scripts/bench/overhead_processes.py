"""Bench of the overhead in whole processes that take turns: what a user's clock shows.

    python -m scripts.bench.overhead_processes --setting recipe [--only TrainPerf] [--pairs 3]

Each fit of fixed work has a process of its own.  Two of them, one with the thing attached and one
without, take turns block by block, so that what disturbs the machine disturbs both; who goes first
changes from block to block, and new processes follow.  A row shows the median ratio of the wall
times of neighbouring blocks with its interval, and what the report of the run says that trainperf
costs next to what the clock says.  Time goes on while a process waits: what is limited to a share
of the time happens twice as often a step as in a fit of its own, so the truth is a little less.
`--setting linear`, `deep`, `dictionary` or `plain` with `--only "trainperf run"` is a loop that
knows nothing of it, measured from outside.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

import torch

from scripts.bench.alternation import Stopwatch
from scripts.bench.checks import reported_us
from scripts.bench.contenders import LOOP_MONITOR, NOTHING, OUTSIDE, Contender
from scripts.bench.harness import (
    Cost,
    PairedEstimate,
    arguments,
    estimate,
    installed,
    publish,
    quiet,
    spread,
)
from scripts.bench.loops import SETTINGS, Setting
from scripts.bench.pipe_turns import MARK, PipeTurns, figures_in_turns


TARGETS = {"recipe": 1.005, "shapes": 1.005, "bare": 1.03}
"""Of the wall time of a step: 15 ms in the first two, about 1 ms in the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRow:
    """One contender in one loop."""

    setting: str
    name: str
    base_us: float
    ratio: PairedEstimate
    added_us: PairedEstimate
    thread_added_us: PairedEstimate
    process_added_us: PairedEstimate
    said_us: float | None
    """Microseconds a step by the reports of the runs; `None` of what writes none."""
    processes: list[list[tuple[Cost, Cost]]]
    """Of each pair of processes, block by block."""


def row(setting: Setting, contender: Contender, options: argparse.Namespace) -> ProcessRow:
    """Pairs of processes."""
    reported: list[float] = []
    processes = [_in_turns(setting, contender, options, reported) for _ in range(options.pairs)]
    pairs = [pair for blocks in processes for pair in blocks]
    added = {
        name: estimate([getattr(ours, name) - getattr(base, name) for base, ours in pairs])
        for name in ("wall_us", "thread_us", "process_us")
    }
    return ProcessRow(
        setting=setting.name,
        name=contender.name,
        base_us=median(base.wall_us for base, _ in pairs),
        ratio=estimate([attached.wall_us / base.wall_us for base, attached in pairs]),
        added_us=added["wall_us"],
        thread_added_us=added["thread_us"],
        process_added_us=added["process_us"],
        said_us=median(reported) if reported else None,
        processes=processes,
    )


def _in_turns(
    setting: Setting, contender: Contender, options: argparse.Namespace, reported: list[float]
) -> list[tuple[Cost, Cost]]:
    with tempfile.TemporaryDirectory() as scratch:
        places = [Path(scratch) / side for side in ("base", "own")]
        contenders = zip((NOTHING, contender), places, strict=True)
        children = [_child(setting, each, options, place) for each, place in contenders]
        costs = [
            [Cost(**cost) for cost in own] for own in figures_in_turns(children, options.blocks)
        ]
        if contender.is_ours:
            reported.append(reported_us(places[1], options.blocks * options.steps))
    return list(zip(*costs, strict=True))


def _child(
    setting: Setting, contender: Contender, options: argparse.Namespace, place: Path
) -> "subprocess.Popen[str]":
    own = ["--child", contender.name, "--setting", setting.name, "--place", str(place)]
    for name in ("threads", "blocks", "steps"):
        own += [f"--{name}", str(getattr(options, name))]
    command = [sys.executable, "-m", "scripts.bench.overhead_processes"]
    if contender is OUTSIDE:
        command = [sys.executable, *OUTSIDE.launcher, str(place), *command[1:]]
    elif contender.launcher:
        command = [*contender.launcher, str(place), __file__, "--args"]
    pipe = subprocess.PIPE
    return subprocess.Popen([*command, *own], stdin=pipe, stdout=pipe, text=True, env=installed())


def _train_here(setting: Setting, options: argparse.Namespace) -> None:
    """One fit, in this process, which gives way after each block."""
    (contender,) = (each for each in setting.contenders() if each.name == options.child)
    watch = Stopwatch(PipeTurns(over=True), 0, options.blocks, options.steps)
    with quiet():
        setting.run(contender, watch, options.place)
    print(MARK + json.dumps([asdict(cost) for cost in watch.costs]), flush=True)


def _cells(row: ProcessRow) -> list[str]:
    return [
        f"{row.setting}: {row.name}",
        *spread(row.ratio, ".4f"),
        *spread(row.added_us, "+.1f"),
        *spread(row.thread_added_us, "+.1f"),
        f"{row.process_added_us.median:+.1f}",
        "" if row.said_us is None else f"{row.said_us:.1f}",
    ]


def main() -> None:
    """Measure, print, write."""
    options = _arguments()
    torch.set_num_threads(options.threads)
    settings = {setting.name: setting for setting in SETTINGS}
    if options.child:
        _train_here(settings[options.setting[0]], options)
        return
    rows: list[ProcessRow] = []
    for name in options.setting or list(TARGETS):
        for contender in settings[name].contenders():
            if contender.name in options.only:
                rows.append(row(settings[name], contender, options))
                print(_cells(rows[-1]), flush=True)
    head = ["attached", "× the loop alone", "95 % interval", "µs a step", "interval"]
    head += ["thread CPU", "interval", "process CPU", "as reported"]
    figures = {"targets": TARGETS, "rows": [asdict(each) for each in rows]}
    written = {name: str(value) for name, value in vars(options).items()}
    publish(options.json, head, list(map(_cells, rows)), {"options": written, **figures})
    alone = ", ".join(f"{each.setting} {each.base_us:.0f} µs" for each in rows)
    print(f"{rows[0].ratio.n} pairs of blocks of {options.steps} steps a row; alone: {alone}")


def _arguments() -> argparse.Namespace:
    parser = arguments(__doc__)
    parser.add_argument("--setting", action="append", help="default: those with a target")
    parser.add_argument(
        "--only", action="append", help="rows; default: TrainPerf, trainperf run, LoopMonitor, A/A"
    )
    parser.add_argument("--pairs", type=int, default=3, help="of processes for a row")
    parser.add_argument("--blocks", type=int, default=24, help="timed blocks in a process")
    parser.add_argument("--steps", type=int, default=50, help="steps in a block: a flush in each")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--child", default="", help="run one fit of this row and print it")
    parser.add_argument("--place", type=Path, help="where a child writes its run")
    options = parser.parse_args()
    options.only = options.only or ["TrainPerf", OUTSIDE.name, LOOP_MONITOR.name, NOTHING.name]
    return options


if __name__ == "__main__":
    main()
