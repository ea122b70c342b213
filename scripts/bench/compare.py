"""Bench of `trainperf compare` on single runs: how often it claims what is none, or misses one.

    python -m scripts.bench.compare record FOLDER tune|"held out" [--machine quiet] [--rounds 6]
    python -m scripts.bench.compare judge FOLDER tune|"held out" [--json FILE]

`record` is one session, some minutes; `judge` compares the runs of all sessions with the code that
the command runs.  What the method was tuned on and what it is judged by are different sessions and
different kinds of loop.  Runs that take turns are judged by `scripts.bench.prove_looks`.

Each run is 400 steps of 2 to 10 ms in a process of its own, kept as a run directory.  A round is
four runs: as it is, 15 % more work, half as much work again, as it is.  Neighbours in time are
compared: the first two (+ 15 %), the last two (× 1.5, the other way round), and the last of a round
with the first of the next (identical).  So no run enters two comparisons of these modes.  What is
as it is in both is compared with every other one as well (identical, apart): minutes lie between
them.

What the added work really takes is calibrated while nothing else of ours runs.
"""

import argparse
import json
import multiprocessing
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
import torch
from scipy.special import betaincinv

from scripts.bench.compare_loops import SINGLE_KINDS, Extra, Make, read_back, train
from scripts.bench.harness import arguments, machine_line, publish
from trainperf.analysis.run.directory import Run
from trainperf.comparison.compare import compare
from trainperf.comparison.compared_run import ComparedRun, read_run
from trainperf.comparison.results import Comparison


WARMUP = 12
STEPS = 400 + WARMUP
CALIBRATION_STEPS = 150
PLANTS = {"base": 0.0, "+15 %": 0.15, "×1.5": 0.5}
ROUND = ("base", "+15 %", "×1.5", "base")
"""What runs of a round have on top."""

INDEX, CALIBRATION = "runs.json", "calibration"

NEIGHBOURS = {"quiet": (0, 0), "busy": (1, 1), "two busy": (2, 2), "busy in one": (0, 1)}
"""Processes that burn a core during even and during odd runs, by what that is called."""

_BURN = "while True: pass"
# Nothing here has computed on several threads, so a fork finds no lock that nobody will open.
_PROCESSES = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleRun:
    """One run of a session."""

    path: str
    """Relative to the session's folder."""
    kind: str
    planted: str
    """One of `PLANTS`."""
    truth: float
    """What the work makes of a step, by steps with and without in turns within a run."""
    began_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleSession:
    """Runs that were recorded in one go."""

    name: str
    split: str
    machine: str
    """One of `NEIGHBOURS`."""
    runs: tuple[SingleRun, ...]


@contextmanager
def _neighbours(number: int) -> Iterator[None]:
    """So many processes that burn a core."""
    burners = [subprocess.Popen([sys.executable, "-c", _BURN]) for _ in range(number)]
    try:
        yield
    finally:
        for burner in burners:
            burner.kill()
            burner.wait()


def record_singles(folder: Path, split: str, machine: str, rounds: int) -> SingleSession:
    """Record a session of so many rounds of every kind of a split into *folder*."""
    torch.set_num_threads(1)
    folder.mkdir(parents=True)
    recorded = SingleSession(name=folder.name, split=split, machine=machine, runs=())
    for kind, make in SINGLE_KINDS[split].items():
        plan = SinglePlan(folder=folder, kind=kind, neighbours=NEIGHBOURS[machine], rounds=rounds)
        recorded = replace(recorded, runs=(*recorded.runs, *_rounds(plan, make)))
        (folder / INDEX).write_text(json.dumps(asdict(recorded), indent=1))
    return recorded


@dataclass(frozen=True, slots=True, kw_only=True)
class SinglePlan:
    """Rounds of one kind of loop."""

    folder: Path
    kind: str
    neighbours: tuple[int, int]
    rounds: int


def _rounds(plan: SinglePlan, make: Make) -> Iterator[SingleRun]:
    folder, kind = plan.folder, plan.kind
    _trained(make, WARMUP, folder / f"warm-{kind}", (0,))  # a fork inherits what torch sets up
    for_15 = _units(make, folder)
    added = _added(make, folder / CALIBRATION, for_15)
    units = {
        planted: (round(for_15 * part), added * part)
        for planted, part in ((name, wanted / PLANTS["+15 %"]) for name, wanted in PLANTS.items())
    }
    for number in range(plan.rounds * len(ROUND)):
        planted = ROUND[number % len(ROUND)]
        name = f"{kind.replace(' ', '-').replace(',', '')}-{number:03d}"
        began_s = time.perf_counter()
        with _neighbours(plan.neighbours[number % 2]):
            _in_a_process(make, STEPS, folder / name, (units[planted][0],))
        yield SingleRun(
            path=name, kind=kind, planted=planted, truth=units[planted][1], began_s=began_s
        )


def _units(make: Make, folder: Path) -> int:
    """So many units of work make a step 15 % longer."""
    units = 200
    for _ in range(2):
        added = max(_added(make, folder / CALIBRATION, units), 0.01)
        units = max(1, round(units * PLANTS["+15 %"] / added))
    return units


def _added(make: Make, place: Path, units: int) -> float:
    """Relative: steps with the work against their neighbours without."""
    _in_a_process(make, CALIBRATION_STEPS, place, (0, units))
    steady = read_back(place)
    logs = np.full(CALIBRATION_STEPS, np.nan)
    logs[steady.index.astype(np.intp)] = np.log(steady.wall_ns)
    return float(np.expm1(np.nanmedian(logs[1::2]) - np.nanmedian(logs[::2])))


def _in_a_process(make: Make, steps: int, place: Path, units: tuple[int, ...]) -> None:
    process = _PROCESSES.Process(target=_trained, args=(make, steps, place, units))
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError(f"{place}: the run ended with {process.exitcode}")


def _trained(make: Make, steps: int, place: Path, units: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    parts = make()
    train(parts, steps, place, Extra(units, parts.wait_s))


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One comparison by the command."""

    session: str
    machine: str
    kind: str
    mode: str
    """`identical`, `identical, apart`, `+15 %` or `×1.5`."""
    truth: float
    right: str
    """The verdict that would be right."""
    comparison: Comparison


def judged(folder: Path, split: str) -> list[Judged]:
    """Every comparison of the sessions of a split below *folder*."""
    return [each for path in sorted(folder.glob(f"*/{INDEX}")) for each in _session(path, split)]


def _session(index: Path, split: str) -> Iterator[Judged]:
    session = json.loads(index.read_text())
    if session["split"] != split:
        return
    runs = [SingleRun(**run) for run in session["runs"]]
    read = {run.path: read_run(Run.open(index.parent / run.path)) for run in runs}
    for (first, before), (second, after) in combinations(enumerate(runs), 2):
        mode = _mode(before, after, apart=second - first > 1)
        if before.kind == after.kind and mode is not None:
            right = {"+15 %": "slower", "×1.5": "faster"}.get(mode, "")
            yield Judged(
                session=session["name"],
                machine=session["machine"],
                kind=before.kind,
                mode=mode,
                truth=max(before.truth, after.truth),
                right=right,
                comparison=_compared(read, before, after),
            )


def _compared(read: Mapping[str, ComparedRun], before: SingleRun, after: SingleRun) -> Comparison:
    return compare([read[before.path]], [read[after.path]])


def _mode(before: SingleRun, after: SingleRun, *, apart: bool) -> str | None:
    if apart:
        return "identical, apart" if before.planted == after.planted == "base" else None
    modes = {("base", "base"): "identical", ("base", "+15 %"): "+15 %", ("×1.5", "base"): "×1.5"}
    return modes.get((before.planted, after.planted))


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """How many of how many, with the 95 % interval of the rate (Clopper and Pearson)."""

    of: int
    count: int
    rate: float
    low: float
    high: float


def share(outcomes: Sequence[bool]) -> Share:
    """Of outcomes, at least one, that do not depend on each other."""
    n, k = len(outcomes), sum(outcomes)
    low = float(betaincinv(k, n - k + 1, 0.025)) if k else 0.0
    high = float(betaincinv(k + 1, n - k, 0.975)) if k < n else 1.0
    return Share(of=n, count=k, rate=k / n, low=low, high=high)


@dataclass(frozen=True, slots=True, kw_only=True)
class SingleCounts:
    """What was said in the comparisons of one mode, by what else ran."""

    machine: str
    mode: str
    kind: str
    claims: Share
    """*Faster* or *slower*, of either clock; for identical runs that is false."""
    right: Share
    """The right verdict; for identical runs anything that claims no change."""
    wrong: Share
    """A change was claimed with the opposite sign; for identical runs, at all."""


def single_counts(cases: Sequence[Judged]) -> list[SingleCounts]:
    """Of all kinds, then kind by kind."""
    groups: dict[tuple[str, str, str], list[Judged]] = {}
    for each in cases:
        for kind in ("all", each.kind):
            groups.setdefault((each.machine, each.mode, kind), []).append(each)
    order = sorted(groups, key=lambda key: (key[2] != "all", key))
    return [_counts(key, groups[key]) for key in order]


def _counts(key: tuple[str, str, str], group: Sequence[Judged]) -> SingleCounts:
    verdicts = [each.comparison.verdict for each in group]
    claims = [verdict in ("faster", "slower") for verdict in verdicts]
    right = [
        verdict == each.right if each.right else not claim
        for verdict, claim, each in zip(verdicts, claims, group, strict=True)
    ]
    wrong = [claim and not rightly for claim, rightly in zip(claims, right, strict=True)]
    return SingleCounts(
        machine=key[0],
        mode=key[1],
        kind=key[2],
        claims=share(claims),
        right=share(right),
        wrong=share(wrong),
    )


def _percent(part: Share) -> str:
    return f"{100 * part.rate:.1f} % [{100 * part.low:.0f}–{100 * part.high:.0f}]"


def _record(given: argparse.Namespace) -> None:
    began = time.perf_counter()
    name = time.strftime("%Y%m%dT%H%M%S", time.gmtime())
    folder = given.folder / f"{name}-{given.machine.replace(' ', '-')}"
    recorded = record_singles(folder, given.split, given.machine, given.rounds)
    seconds = time.perf_counter() - began
    print(f"{machine_line()}\n{len(recorded.runs)} runs in {seconds:.0f} s: {folder}")


def _judge(given: argparse.Namespace) -> None:
    cases = judged(given.folder, given.split)
    counts = single_counts(cases)
    rows = [
        [
            *(count.machine, count.mode, count.kind, str(count.right.of)),
            *map(_percent, (count.claims, count.right, count.wrong)),
        ]
        for count in counts
    ]
    planted = {f"{c.session}, {c.kind}, {c.mode}: {c.truth:+.1%}" for c in cases if c.right}
    head = ["machine", "runs", "loop", "pairs", "claim a change", "right", "wrong"]
    result = {"split": given.split, "method": __doc__, "truths": sorted(planted)}
    publish(given.json, head, rows, {**result, "counts": [asdict(count) for count in counts]})


def main() -> None:
    """Record, or judge what was recorded."""
    parser = arguments(__doc__)
    parser.add_argument("what", choices=["record", "judge"])
    parser.add_argument("folder", type=Path)
    parser.add_argument("split", choices=list(SINGLE_KINDS))
    parser.add_argument("--machine", choices=[*NEIGHBOURS], default="quiet", help="what else runs")
    parser.add_argument("--rounds", type=int, default=6, help="of four runs, of every kind")
    given = parser.parse_args()
    (_record if given.what == "record" else _judge)(given)


if __name__ == "__main__":
    main()
