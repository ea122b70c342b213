"""Simulated comparisons by pairs with a known truth: how often the sequential design errs.

Every experiment is a sequence of pairs judged after each, as `trainperf prove` does it, by the code
that it runs.  `python -m scripts.bench.prove_simulated --json FILE`.
"""

import json
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass

import numpy as np
import numpy.typing as npt

from scripts.bench.harness import arguments
from trainperf.core.stats.bootstrap import Estimate
from trainperf.core.stats.sequential import Looks, sequential_interval


Values = npt.NDArray[np.float64]
Noise = Callable[[np.random.Generator, int], Values]
"""Log ratios of so many pairs of identical runs."""

MARGIN = 0.02
WITHIN = 0.004
"""Standard error that the steps inside of a pair leave."""


def normal(spread: float) -> Noise:
    """Independent pairs."""
    return lambda generator, number: generator.normal(0, spread, number)


def heavy(spread: float) -> Noise:
    """Student's with three degrees of freedom, of that standard deviation."""
    return lambda generator, number: generator.standard_t(3, number) * spread / math.sqrt(3)


def correlated(spread: float, share: float) -> Noise:
    """Neighbouring pairs have that correlation."""

    def draw(generator: np.random.Generator, number: int) -> Values:
        values = generator.normal(0, spread, number)
        for place in range(1, number):
            new = math.sqrt(1 - share**2) * values[place]
            values[place] = share * values[place - 1] + new
        return values

    return draw


def disturbed(spread: float, share: float, size: float) -> Noise:
    """A share of the pairs is off by a larger spread."""

    def draw(generator: np.random.Generator, number: int) -> Values:
        struck = generator.random(number) < share
        return generator.normal(0, np.where(struck, size, spread), number)

    return draw


NOISES: dict[str, Noise] = {
    "normal 0.5 %": normal(0.005),
    "normal 1 %": normal(0.01),
    "normal 2 %": normal(0.02),
    "normal 4 %": normal(0.04),
    "normal 8 %": normal(0.08),
    "heavy tails 1.4 % (t, 3 df)": heavy(0.014),
    "heavy tails 4 % (t, 3 df)": heavy(0.04),
    "correlated 1.4 % (0.3)": correlated(0.014, 0.3),
    "correlated 1.4 % (0.6)": correlated(0.014, 0.6),
    "one pair in ten off by 10 %, others 1 %": disturbed(0.01, 0.1, 0.1),
}
TRUTHS = (1.0, 1.01, 1.02, 1.025, 1.03, 1.05, 1.1, 1.3)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What became of the experiments with one noise and one truth."""

    noise: str
    truth: float
    most: int
    experiments: int
    changed: float
    """Share that claims a change, in the right direction unless there is none."""
    wrong: float
    """Share that claims one where there is none, or in the wrong direction."""
    equal: float
    missed: float
    """Share of sequences in which at least one interval misses the truth."""
    pairs: float
    """Mean number until it stopped."""


def experiment(
    generator: np.random.Generator, noise: Noise, truth: float, most: int
) -> tuple[str, int, bool]:
    """The verdict, the pairs it took, and whether an interval up to there missed the truth."""
    looks = Looks(most=most)
    logs = math.log(truth) + noise(generator, most) + generator.normal(0, WITHIN, most)
    zero = Estimate(log=0.0, sampling=0.0, drift=0.0)
    after = [Estimate(log=float(log), sampling=WITHIN**2, drift=0.0) for log in logs]
    missed = False
    for pairs in range(1, most + 1):
        interval = sequential_interval([zero] * pairs, after[:pairs], looks)
        missed = missed or not interval.low <= truth <= interval.high
        if interval.low > 1 or interval.high < 1:
            return ("slower" if interval.low > 1 else "faster"), pairs, missed
        if interval.low >= 1 / (1 + MARGIN) and interval.high <= 1 + MARGIN:
            return "equal", pairs, missed
    return "undecided", most, missed


def simulated(name: str, truth: float, most: int, experiments: int, seed: int) -> Row:
    """So many experiments; deterministic."""
    generator = np.random.default_rng([seed, *name.encode(), round(truth * 1000), most])
    outcomes = [experiment(generator, NOISES[name], truth, most) for _ in range(experiments)]
    verdicts = [verdict for verdict, _, _ in outcomes]
    changed, wrong = verdicts.count("slower"), verdicts.count("faster")
    if truth == 1.0:
        changed = wrong = changed + wrong
    return Row(
        noise=name,
        truth=truth,
        most=most,
        experiments=experiments,
        changed=changed / experiments,
        wrong=wrong / experiments,
        equal=verdicts.count("equal") / experiments,
        missed=sum(missed for _, _, missed in outcomes) / experiments,
        pairs=float(np.mean([pairs for _, pairs, _ in outcomes])),
    )


def main() -> None:
    """Simulate every noise and truth, print a line for each, and write them as JSON."""
    parser = arguments(__doc__)
    parser.add_argument("--experiments", type=int, default=10_000)
    parser.add_argument("--most", type=int, default=10)
    parser.add_argument("--truths", type=float, nargs="*", default=TRUTHS)
    parser.add_argument("--seed", type=int, default=12)
    given = parser.parse_args()
    rows = []
    for name in NOISES:
        for truth in given.truths:
            row = simulated(name, truth, given.most, given.experiments, given.seed)
            rows.append(asdict(row))
            print(
                f"{name:42} {truth:5.3f}  changed {row.changed:6.2%}  wrong {row.wrong:6.2%}  "
                f"equal {row.equal:6.2%}  missed {row.missed:6.2%}  pairs {row.pairs:.1f}",
                flush=True,
            )
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
