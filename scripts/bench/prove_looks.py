"""Pairs of runs in turns, recorded to the last and then judged look by look, as `prove` does it.

Identical runs show how often a change is claimed; the same pairs with the steps of one side made
longer by a share, how often and after how many pairs that is found.

    python -m scripts.bench.prove_looks --split "held out" --seconds 150 --json FILE

Called again with the same file it adds to it.  Every run has a process of its own, as `prove`
launches them; here they are forked, and nothing is imported anew.
"""

import argparse
import json
import math
import multiprocessing
import os
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch

from scripts.bench.compare_loops import KINDS, Extra, Make, read_back, train
from trainperf.comparison.compared_run import estimates
from trainperf.core.interleaving import Participant, Referee, new_address
from trainperf.core.phases import PHASES, Phase
from trainperf.core.stats.bootstrap import Estimate
from trainperf.core.stats.sequential import Looks, sequential_interval
from trainperf.core.steps.block import StepBlock, StepSchema
from trainperf.core.steps.records import CORE_COLUMNS


PAIRS = 10
"""Of a comparison."""
STEPS = 80
"""Of a run: about 50 are steady, so that a side has 500."""
MARGIN = 0.02
LONGER = (0.0, 0.03, 0.05, 0.1, 0.3)

Pairs = Sequence[tuple[Estimate, Estimate]]
Walls = npt.NDArray[np.int64]
"""Nanoseconds of steady steps."""

# Nothing here has computed on several threads, so a fork finds no lock that nobody will open.
_PROCESSES = multiprocessing.get_context("fork")


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the looks at one comparison end with."""

    kind: str
    longer: float
    verdict: str
    pairs: int
    low: float
    high: float


def judged(kind: str, pairs: Pairs, longer: float) -> Outcome:
    """Look after every pair, until it is decided."""
    looks = Looks(most=len(pairs))
    before = [first for first, _ in pairs]
    after = [replace(second, log=second.log + math.log1p(longer)) for _, second in pairs]
    verdict, number = "undecided", len(pairs)
    for number in range(1, len(pairs) + 1):
        interval = sequential_interval(before[:number], after[:number], looks)
        if interval.low > 1 or interval.high < 1:
            verdict = "slower" if interval.low > 1 else "faster"
        elif interval.low >= 1 / (1 + MARGIN) and interval.high <= 1 + MARGIN:
            verdict = "equal"
        if verdict != "undecided":
            break
    return Outcome(
        kind=kind,
        longer=longer,
        verdict=verdict,
        pairs=number,
        low=interval.low,
        high=interval.high,
    )


def recorded(make: Make, pairs: int = PAIRS) -> Pairs | None:
    """Pairs of identical runs, each run in a process of its own; `None` if one has few steps."""
    steps = [estimated(walls) for _ in range(pairs) for walls in by_turns(make)]
    estimates_ = [step for step in steps if step is not None]
    if len(estimates_) < len(steps):
        return None
    return list(zip(estimates_[::2], estimates_[1::2], strict=True))


def by_turns(make: Make) -> list[Walls]:
    """The steps of two runs that take turns ten steps at a time."""
    with new_address() as address, Referee(address):
        sides = [_begun(make, Participant(address=str(address), side=side)) for side in (0, 1)]
        walls = []
        for process, receiver in sides:
            walls.append(receiver.recv())
            process.join()
    return walls


def _begun(
    make: Make, place: Participant
) -> "tuple[multiprocessing.process.BaseProcess, Connection[None, Walls]]":
    here, there = _PROCESSES.Pipe(duplex=False)
    process = _PROCESSES.Process(target=_side, args=(make, place, there))
    process.start()
    there.close()
    return process, here


def _side(make: Make, place: Participant, sender: "Connection[Walls, None]") -> None:
    os.environ.update(place.variable())
    sender.send(trained(make))


def trained(make: Make) -> Walls:
    """One run, here: what its steady steps took."""
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as run:
        return read_back(train(make(), STEPS, Path(run), Extra())).wall_ns.astype(np.int64)


def estimated(walls: Walls) -> Estimate | None:
    """By the code that `trainperf compare` runs, for the reading that decides."""
    matrix = np.zeros((len(walls), len(CORE_COLUMNS)))
    matrix[:, len(CORE_COLUMNS) - len(PHASES) + Phase.OTHER] = walls
    block = StepBlock(StepSchema(), matrix)
    whole = None if block.walls is None else block.walls.value()
    return None if whole is None else estimates((block,), {"step_s": whole}).get("step_s")


def comparisons(split: str, kept: list[Outcome], seconds: float) -> Iterator[list[Outcome]]:
    """New comparisons, of the kind that has fewest each time, until the seconds are over."""
    torch.set_num_threads(1)
    begun_s, warm = time.perf_counter(), set[str]()
    counts = Counter(each.kind for each in kept)
    while time.perf_counter() - begun_s < seconds:
        kind = min(KINDS[split], key=lambda name: counts[name])
        if kind not in warm:
            trained(KINDS[split][kind])  # a fork inherits what torch sets up
            warm.add(kind)
        counts[kind] += len(LONGER)
        pairs = recorded(KINDS[split][kind])
        if pairs is None:
            print(f"{kind}: too few steady steps", flush=True)
            continue
        scatter = np.std([second.log - first.log for first, second in pairs], ddof=1)
        sampled = np.median([first.sampling + second.sampling for first, second in pairs]) ** 0.5
        print(f"{kind}: pairs differ by {scatter:.1%}, steps leave {sampled:.1%}", flush=True)
        yield [judged(kind, pairs, longer) for longer in LONGER]


def main() -> None:
    """Record, judge and print; what is in the file already is kept."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--split", default="held out")
    parser.add_argument("--seconds", type=float, default=150, help="no comparison begins later")
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args()
    kept = json.loads(given.json.read_text()) if given.json.exists() else []
    outcomes = [Outcome(**each) for each in kept]
    for judgements in comparisons(given.split, outcomes, given.seconds):
        outcomes += judgements
        given.json.write_text(json.dumps([asdict(each) for each in outcomes], indent=1) + "\n")
    for longer in LONGER:
        chosen = [each for each in outcomes if each.longer == longer]
        verdicts = Counter(each.verdict for each in chosen)
        print(
            f"{longer:5.0%}: {len(chosen)} comparisons, "
            + ", ".join(f"{number} {name}" for name, number in sorted(verdicts.items()))
            + f", {np.mean([each.pairs for each in chosen]):.1f} pairs"
        )


if __name__ == "__main__":
    main()
