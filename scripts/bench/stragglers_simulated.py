"""Simulated jobs of 8 to 4,096 ranks with a known truth: how often the late rank is named rightly.

Each case is a job of `scripts/simulation` with noise of its own, judged by the code that `report`
runs.  The truth is each plant that matters: without it the job's step is shorter by at least 8 %
and 1.5 ms.  What matters must be named, what was not planted must not.

`python -m scripts.bench.stragglers_simulated [--held-out] [--json FILE]`
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial

import numpy as np

from scripts.bench.harness import arguments, machine_line, table, write_json
from scripts.simulation.arrivals import Job, Plant, step_s
from scripts.simulation.records import blocks
from trainperf.analysis.summary.lateness import LatenessFold
from trainperf.analysis.summary.schema import SyncPoint


CASES = {8: 100, 64: 100, 512: 50, 4096: 25}
"""Ranks to cases of each kind."""

STEPS = 200
HELD_OUT = 10_000
"""First seed of the cases that nothing was tuned on."""

KINDS = ("healthy", "one rank", "two ranks", "rotating", "a host", "now and then")

LEAST_FRACTION, LEAST_S = 0.08, 0.0015
"""By how much of the step, and by how long, a plant must lengthen it to count."""

BEFORE = {
    "cpu": ("data_wait", "callbacks_before", "forward", "backward"),
    "cuda": ("data_wait", "callbacks_before", "device_forward", "device_backward"),
}
"""Pieces that make a rank late at the all-reduce."""
AFTER = ("callbacks_after", "optimizer", "callbacks_end", "other")
"""Pieces that make it late before the next fetch: under Lightning; else at the next all-reduce."""

CAUSE = {"callbacks_before": "callbacks", "callbacks_after": "callbacks"} | {
    "callbacks_end": "callbacks",
    "device_forward": None,
    "device_backward": None,
}
"""Piece to the phase that is to be named; `None` where only the device is slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What came of one case."""

    kind: str
    ranks: int
    device: str
    loop: str
    matters: bool
    """Whether a plant lengthens the step."""
    named: tuple[int, ...]
    rank_right: bool
    """Every plant that matters is named, by one rank of its own at least, and nobody else is."""
    cause_right: bool
    whole: bool
    """Right, and every rank of each plant that matters is named."""
    pieces: tuple[str, ...]
    lost_fraction: tuple[float, ...]
    """Of the step, to each plant."""


def job_of(kind: str, ranks: int, seed: int) -> Job:
    """The case of that seed."""
    rng = np.random.default_rng((seed, ranks, KINDS.index(kind)))
    device = "cpu" if kind == "two ranks" else str(rng.choice(["cpu", "cuda"]))
    loop = "lightning" if kind == "two ranks" else str(rng.choice(["lightning", "plain"]))
    scale = float(np.exp(rng.uniform(np.log(0.2), np.log(10.0))))
    step_ms = 48.0 * scale
    job = Job(
        ranks=ranks,
        steps=STEPS,
        loop=loop,
        device=device,
        seed=seed,
        scale=scale,
        jitter=rng.uniform(0.01, 0.05),
        spread=rng.uniform(0.002, 0.006),
        struck=float(np.exp(rng.uniform(np.log(0.0005), np.log(0.01)))),
        tail_index=rng.uniform(1.2, 2.5),
        leave_ms=rng.uniform(0.01, 0.05),
        transfer_ms=step_ms * rng.uniform(0.01, 0.10),
    )
    fraction = float(np.exp(rng.uniform(np.log(0.10), np.log(1.0))))
    delay_ms = max(2.0, fraction * step_ms)
    return replace(job, plants=tuple(_plants(kind, job, delay_ms, rng)))


def _plants(kind: str, job: Job, delay_ms: float, rng: np.random.Generator) -> Iterator[Plant]:
    early = str(rng.choice(BEFORE[job.device]))
    anywhere = str(rng.choice([*BEFORE[job.device], *AFTER]))
    rank = int(rng.integers(job.ranks))
    if kind == "one rank":
        yield Plant(ranks=(rank,), piece=anywhere, delay_ms=delay_ms)
    elif kind == "two ranks":
        other = (rank + 1 + int(rng.integers(job.ranks - 1))) % job.ranks
        yield Plant(ranks=(rank,), piece=early, delay_ms=delay_ms)
        later = str(rng.choice(AFTER))
        yield Plant(ranks=(other,), piece=later, delay_ms=delay_ms * rng.uniform(0.7, 1.4))
    elif kind == "rotating":
        every = tuple(range(job.ranks))
        yield Plant(ranks=every, piece=early, delay_ms=delay_ms, rotates=True)
    elif kind == "a host":
        first = rank // job.per_host * job.per_host
        host = tuple(range(first, first + job.per_host))
        yield Plant(ranks=host, piece=anywhere, delay_ms=delay_ms)
    elif kind == "now and then":
        yield Plant(ranks=(rank,), piece="data_wait", delay_ms=4 * delay_ms, share=0.25)


def points_of(job: Job) -> tuple[SyncPoint, ...]:
    """What `report` knows of who is late."""
    fold = LatenessFold(range(job.ranks), loop_waits=job.loop == "lightning")
    for steps in blocks(job):
        fold.observe(steps)
    return fold.points()


def judged(kind: str, ranks: int, seed: int) -> Verdict:
    """One case."""
    job = job_of(kind, ranks, seed)
    named = {rank: point for point in points_of(job) for rank in named_by(point)}
    planted_s = step_s(job)
    without = [replace(job, plants=_others(job.plants, plant)) for plant in job.plants]
    lost = [planted_s - step_s(other) for other in without]
    enough_s = max(LEAST_FRACTION * planted_s, LEAST_S)
    matters = [plant for plant, lost_s in zip(job.plants, lost, strict=True) if lost_s >= enough_s]
    guilty = {rank for plant in job.plants if not plant.rotates for rank in plant.ranks}
    rank_right = set(named) <= guilty and all(
        plant.rotates or set(named) & set(plant.ranks) for plant in matters
    )
    return Verdict(
        kind=kind,
        ranks=ranks,
        device=job.device,
        loop=job.loop,
        matters=bool(matters),
        named=tuple(sorted(named)),
        rank_right=rank_right,
        cause_right=rank_right
        and all(_caused(rank, point, job.plants) for rank, point in named.items()),
        whole=rank_right
        and all(plant.rotates or set(named) >= set(plant.ranks) for plant in matters),
        pieces=tuple(plant.piece for plant in job.plants),
        lost_fraction=tuple(round(lost_s / planted_s, 3) for lost_s in lost),
    )


def named_by(point: SyncPoint) -> tuple[int, ...]:
    """The ranks that a point blames."""
    return tuple(late.rank for late in point.late)


def _others(plants: Sequence[Plant], without: Plant) -> tuple[Plant, ...]:
    # A plant of no share keeps the draws of those after it as they are.
    return tuple(replace(each, share=0.0) if each is without else each for each in plants)


def _caused(rank: int, point: SyncPoint, plants: Sequence[Plant]) -> bool:
    causes = [CAUSE.get(plant.piece, plant.piece) for plant in plants if rank in plant.ranks]
    return any(late.rank == rank and late.cause in causes for late in point.late)


def summary(verdicts: Sequence[Verdict]) -> list[dict[str, object]]:
    """Per kind and number of ranks."""
    rows: list[dict[str, object]] = []
    for kind in KINDS:
        for ranks in sorted({verdict.ranks for verdict in verdicts}):
            mine = [each for each in verdicts if (each.kind, each.ranks) == (kind, ranks)]
            judged_here = [each for each in mine if each.matters or kind == "healthy"]
            if not mine:
                continue
            rows.append(
                {
                    "kind": kind,
                    "ranks": ranks,
                    "cases": len(judged_here),
                    "not_counted": len(mine) - len(judged_here),
                    "right": sum(each.rank_right for each in judged_here),
                    "with_cause": sum(each.cause_right for each in judged_here),
                    "whole": sum(each.whole for each in judged_here),
                    "named": sum(bool(each.named) for each in judged_here),
                }
            )
    return rows


def main() -> None:
    """Simulate, judge, print."""
    parser = arguments(__doc__)
    parser.add_argument("--held-out", action="store_true", help="the seeds nothing was tuned on")
    parser.add_argument("--ranks", type=int, nargs="*", default=list(CASES))
    parser.add_argument("--share", type=float, default=1.0, help="of the cases")
    parser.add_argument("--processes", type=int, default=1)
    given = parser.parse_args()
    first = HELD_OUT if given.held_out else 0
    with ProcessPoolExecutor(given.processes) as pool:
        futures = [
            pool.submit(partial(judged, kind, ranks, first + seed))
            for ranks, number in CASES.items()
            if ranks in given.ranks
            for kind in KINDS
            if (kind, ranks) != ("a host", 8)
            for seed in range(max(1, round(given.share * number)))
        ]
        verdicts = [future.result() for future in futures]
    rows = summary(verdicts)
    print(machine_line())
    print(table(list(rows[0]), [[str(value) for value in row.values()] for row in rows]))
    wrong = [each for each in verdicts if each.matters and not each.cause_right]
    shown = Counter(
        (each.kind, each.device, each.loop, each.pieces, each.rank_right) for each in wrong
    )
    for what, times in shown.most_common(30):
        print(times, *what)
    result = {"held_out": given.held_out, "rows": rows, "wrong": [asdict(each) for each in wrong]}
    write_json(given.json, result)


if __name__ == "__main__":
    main()
