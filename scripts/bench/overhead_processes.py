"""Bench of the overhead in whole processes that take turns: what a user's clock shows.

    python -m scripts.bench.overhead_processes --setting recipe [--only TrainPerf] [--pairs 3]

Each fit of fixed work has a process of its own.  Two of them, one with the thing attached and one
without, take turns block by block, so that what disturbs the machine disturbs both; who goes first
changes from block to block, and new processes follow.  A row shows the median ratio of the wall
times of neighbouring blocks with its interval, and what the report of the run says that trainperf
costs next to what the clock says.  Time goes on while a process waits: what is limited to a share
of the time happens twice as often a step as in a fit of its own, so the truth is a little less.
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

from scripts.bench.alternation import Cost, Stopwatch
from scripts.bench.contenders import NOTHING, Contender
from scripts.bench.harness import (
    PairedEstimate,
    estimate,
    installed,
    machine_line,
    quiet,
    table,
    write_json,
)
from scripts.bench.loops import SETTINGS, Setting
from scripts.bench.pipe_turns import MARK, PipeTurns, figures_in_turns
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.core.readings import OVERHEAD_S


TARGETS = {"recipe": 1.005, "shapes": 1.005, "bare": 1.03}
"""Of the wall time of a step: 15 ms in the first two, about 1 ms in the last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """What one process showed, block by block."""

    blocks: list[Cost]
    said_us: float | None
    """Microseconds a step by the report of the run; `None` of one that has none."""


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
    processes: list[tuple[Process, Process]]


def fit(setting: Setting, contender: Contender, blocks: int, steps: int) -> Process:
    """One fit, in this process, which gives way after each block."""
    watch = Stopwatch(PipeTurns(over=True), 0, blocks, steps)
    with tempfile.TemporaryDirectory() as scratch, quiet():
        setting.run(contender, watch, Path(scratch))
        own_s = summarize(Run.open(Path(scratch))).value(OVERHEAD_S) if contender.is_ours else None
    return Process(blocks=watch.costs, said_us=None if own_s is None else 1e6 * own_s)


def row(setting: Setting, contender: Contender, options: argparse.Namespace) -> ProcessRow:
    """Pairs of processes."""
    processes = [_in_turns(setting, contender, options) for _ in range(options.pairs)]
    pairs = [
        pair
        for base, attached in processes
        for pair in zip(base.blocks, attached.blocks, strict=True)
    ]
    reported = [attached.said_us for _, attached in processes if attached.said_us is not None]
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
    setting: Setting, contender: Contender, options: argparse.Namespace
) -> tuple[Process, Process]:
    with tempfile.TemporaryDirectory() as place:
        children = [_child(setting, each, options, place) for each in (NOTHING, contender)]
        base, attached = (
            Process(blocks=[Cost(**cost) for cost in figures["blocks"]], said_us=figures["said_us"])
            for figures in figures_in_turns(children, options.blocks)
        )
    return base, attached


def _child(
    setting: Setting, contender: Contender, options: argparse.Namespace, place: str
) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "scripts.bench.overhead_processes"]
    if contender.launcher:
        command = [*contender.launcher, "--logs-dir", place, __file__, "--args"]
    command += [
        "--child",
        contender.name,
        "--setting",
        setting.name,
        "--threads",
        str(options.threads),
    ]
    command += ["--blocks", str(options.blocks), "--steps", str(options.steps)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, env=installed())


def shown(rows: list[ProcessRow]) -> str:
    """The rows as a table."""
    head = ["attached", "× the loop alone", "95 % interval", "µs a step", "interval"]
    head += ["thread CPU", "process CPU", "as reported"]
    cells = [
        [
            f"{each.setting}: {each.name}",
            f"{each.ratio.median:.4f}",
            f"{each.ratio.low:.4f} to {each.ratio.high:.4f}",
            f"{each.added_us.median:+.1f}",
            f"{each.added_us.low:+.1f} to {each.added_us.high:+.1f}",
            f"{each.thread_added_us.median:+.1f}",
            f"{each.process_added_us.median:+.1f}",
            "" if each.said_us is None else f"{each.said_us:.1f}",
        ]
        for each in rows
    ]
    return table(head, cells)


def main() -> None:
    """Measure, print, write."""
    options = _arguments()
    torch.set_num_threads(options.threads)
    settings = {setting.name: setting for setting in SETTINGS}
    if options.child:
        setting = settings[options.setting[0]]
        chosen = next(each for each in setting.contenders() if each.name == options.child)
        print(MARK + json.dumps(asdict(fit(setting, chosen, options.blocks, options.steps))))
        return
    rows: list[ProcessRow] = []
    for name in options.setting or list(TARGETS):
        for contender in settings[name].contenders():
            if contender.name in options.only:
                rows.append(row(settings[name], contender, options))
                print(f"{name}: {rows[-1].base_us:.0f} µs of wall time a step without anything")
                print(f"{shown(rows[-1:])}\n", flush=True)
    print(f"{rows[0].ratio.n} pairs of blocks of {options.steps} steps a row; {machine_line()}")
    print(f"\n{shown(rows)}")
    figures = {"targets": TARGETS, "rows": [asdict(each) for each in rows]}
    write_json(options.json, {"options": {**vars(options), "json": None}, **figures})


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--setting", action="append", help="default: those with a target")
    parser.add_argument(
        "--only", action="append", default=None, help="rows: default TrainPerf, A/A"
    )
    parser.add_argument("--pairs", type=int, default=3, help="of processes for a row")
    parser.add_argument("--blocks", type=int, default=24, help="timed blocks in a process")
    parser.add_argument("--steps", type=int, default=50, help="steps in a block: a flush in each")
    parser.add_argument("--threads", type=int, default=1, help="of torch")
    parser.add_argument("--child", default="", help="run one fit of this row and print it")
    parser.add_argument("--json", type=Path, default=None, help="also write the figures here")
    options = parser.parse_args()
    options.only = options.only or ["TrainPerf", NOTHING.name]
    return options


if __name__ == "__main__":
    main()
