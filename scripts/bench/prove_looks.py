"""Pairs of runs in turns, recorded to the last and then judged look by look, as `prove` does it.

Identical runs show how often a change is claimed; the same pairs with the steps of one side made
longer by a share, how often and after how many pairs that is found.

    python -m scripts.bench.prove_looks --split "held out" --comparisons 5 --json FILE
"""

import argparse
import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch

from scripts.bench.compare_loops import KINDS
from scripts.bench.compare_record import Bench
from scripts.bench.compare_turns import PAIRS, STEPS, by_turns, to_record
from scripts.bench.compare_verdicts import estimated
from trainperf.core.stats.bootstrap import Estimate
from trainperf.core.stats.sequential import Looks, sequential_interval


MARGIN = 0.02
LONGER = (0.0, 0.03, 0.05, 0.1, 0.3)

Pairs = Sequence[tuple[Estimate, Estimate]]


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


def recorded(kind: str, split: str, comparisons: int) -> Iterator[Pairs]:
    """Pairs of identical runs, each run in a process of its own."""
    like = to_record("looks", split, kind)
    for _ in range(comparisons):
        steps = [run.step for run in estimated(list(by_turns(like, PAIRS)))]
        estimates = [step for step in steps if step is not None]
        if len(estimates) == 2 * PAIRS:
            yield list(zip(estimates[::2], estimates[1::2], strict=True))


def main() -> None:
    """Record, judge and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--split", default="held out")
    parser.add_argument("--comparisons", type=int, default=5)
    parser.add_argument("--json", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    outcomes: list[Outcome] = []
    for kind, make in KINDS[given.split].items():
        Bench(session="looks", split=given.split, kind=kind, make=make).recorded("warm", STEPS)
        for pairs in recorded(kind, given.split, given.comparisons):
            outcomes += [judged(kind, pairs, longer) for longer in LONGER]
            given.json.write_text(json.dumps([asdict(each) for each in outcomes], indent=1) + "\n")
    for longer in LONGER:
        chosen = [each for each in outcomes if each.longer == longer]
        verdicts = [each.verdict for each in chosen]
        print(
            f"{longer:5.0%}: {len(chosen)} comparisons, "
            + ", ".join(f"{verdicts.count(name)} {name}" for name in sorted(set(verdicts)))
            + f", {np.mean([each.pairs for each in chosen]):.1f} pairs"
        )


if __name__ == "__main__":
    main()
