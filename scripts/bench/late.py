"""Bench of who is late: planted sleeps in fits of real gloo ranks, and what is read of them.

    python -m scripts.bench.late --fit DIR --loop lightning --ranks 2 [--turn 1]
    python -m scripts.bench.late --fit DIR --loop plain --matrix 5 20 [--healthy 20] [--every 2]
    python -m scripts.bench.late --judge DIR [DIR …] [--json FILE]

Ranks sleep in turn, at six places, under Lightning and in a plain loop.  A fit is right when
the ranks and phases that were planted are named, and no others, each within 10 % or 1 ms of its
sleep.  The step without the sleep is predicted from the fit with it, and trained as well.  With
`--work MS` all ranks multiply for about so long in every forward, instead of sleeping 10 ms.  With
`--matrix` each rank sleeps in turn at each place, for so many milliseconds; with `--every 2` half
of the ranks at a place, and the others at the next one.
"""

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from scripts.bench.harness import arguments, table, write_json
from scripts.bench.late_ranks import LIGHTNING, PLAIN, PlannedFit, work_matrix
from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.analysis.summary.ranks import saved_s
from trainperf.analysis.summary.schema import Summary
from trainperf.core.readings import STEP_MEAN_S


SIZES_S = (0.005, 0.020, 0.100)
BASE_S, LONG_BASE_S = 0.010, 0.060
STEPS = 72
HEALTHY = 5
TOLERATED, TOLERATED_S = 0.10, 0.001

PHASES = {
    "loader": "data_wait",
    "batch start": "callbacks",
    "batch end": "callbacks",
    "callbacks": "callbacks",
}
"""Place to the phase that it is in, where that is not its name."""
AFTER = ("optimizer", "batch end", "callbacks")
"""Places after backward; under Lightning the ranks meet before and after them."""

Named = frozenset[tuple[int, str]]


def plan_of(loop: str, ranks: int, turn: int = 0) -> list[PlannedFit]:
    """All fits of one kind of loop on so many ranks; in another *turn* other ranks sleep."""
    places = LIGHTNING if loop == "lightning" else PLAIN
    first = PlannedFit(name="healthy-0", loop=loop, steps=STEPS, base_s=BASE_S)
    plan = [_renamed(first, f"healthy-{number}") for number in range(HEALTHY)]
    for size_at, size_s in enumerate(SIZES_S):
        for number, place in enumerate(places):
            if size_s == SIZES_S[-1] and number % 2 != (ranks // 4 + turn) % 2:
                continue  # long ones at every second place, the others in another turn
            plan.append(_sleeping(first, ((number + size_at + turn) % ranks, place, size_s)))
    last = (ranks - 1 + turn) % ranks
    for early, late in ((0, 4), (5, 2), (0, 2)):
        other = (last + 1) % ranks
        sleeps = ((other, places[early], SIZES_S[1]), (last, places[late], SIZES_S[1]))
        plan.append(_sleeping(first, *sleeps))
    plan.append(_renamed(first, "in-turns", sleeps=((0, "forward", SIZES_S[1]),), rotating=True))
    for place, meeting in (
        ("loader", "forward"),
        ("forward", "optimizer"),
        ("optimizer", places[-1]),
    ):
        alone = ((last, place, SIZES_S[1]),)
        plan.append(_renamed(first, f"meet-{_slug(meeting)}", sleeps=alone, meeting=meeting))
    calm = _renamed(first, "long-healthy-0", base_s=LONG_BASE_S)
    plan += [calm, *(_sleeping(calm, (last, place, SIZES_S[1])) for place in places[::2])]
    return plan


def matrix_of(
    loop: str, ranks: int, sizes_ms: Sequence[float], healthy: int, every: int = 1
) -> list[PlannedFit]:
    """Every rank in turn at every place with every size, healthy fits, and two slow ranks.

    Of the ranks at a place only *every* so many are taken, from place to place others.
    """
    places = LIGHTNING if loop == "lightning" else PLAIN
    first = PlannedFit(name="healthy-0", loop=loop, steps=STEPS, base_s=BASE_S)
    single = [
        _sleeping(first, (rank, place, size_ms / 1e3))
        for size_ms in sizes_ms
        for number, place in enumerate(places)
        for rank in range(ranks)
        if (rank - number) % every == 0
    ]
    # Of two ranks that sleep as long nobody is late; of four two are.
    later_s = SIZES_S[1] * (2 if ranks == 2 else 1)
    pairs = [
        _sleeping(first, (rank, places[0], SIZES_S[1]), ((rank + 1) % ranks, places[4], later_s))
        for rank in range(0, ranks, every)
    ]
    calm = [_renamed(first, f"healthy-{number}") for number in range(healthy)]
    # Healthy fits between the others: the machine changes its speed over minutes.
    apart = max(1, len(single + pairs) // max(1, healthy))
    plan: list[PlannedFit] = []
    for number, fit_ in enumerate(single + pairs):
        plan += [calm.pop(0)] if calm and number % apart == 0 else []
        plan.append(fit_)
    return plan + calm


def working(plan: Sequence[PlannedFit], work_ms: float) -> list[PlannedFit]:
    """The same fits with work that keeps a core busy: as often a product as fits into so long.

    All ranks do the same work, however long it then takes on each of them.
    """
    torch.set_num_threads(1)
    matrix = work_matrix()
    times_ns = []
    for _ in range(200):
        begun_ns = time.perf_counter_ns()
        matrix @ matrix
        times_ns.append(time.perf_counter_ns() - begun_ns)
    products = max(1, round(work_ms * 1e6 / sorted(times_ns)[100]))
    return [replace(fit, base_s=work_ms / 1e3, products=products) for fit in plan]


def _renamed(fit: PlannedFit, name: str, **changes: object) -> PlannedFit:
    return PlannedFit(**{**asdict(fit), **changes, "name": name})


def _sleeping(fit: PlannedFit, *sleeps: tuple[int, str, float]) -> PlannedFit:
    name = "-".join(f"r{rank}-{_slug(place)}-{1e3 * s:.0f}ms" for rank, place, s in sleeps)
    prefix = "long-" if fit.base_s > BASE_S else ""
    return _renamed(fit, prefix + name, sleeps=sleeps)


def _slug(place: str) -> str:
    return place.replace(" ", "-")


def fit(base: Path, plan: Sequence[PlannedFit], ranks: int) -> None:
    """Train the plan in so many processes; their records stay in *base*."""
    base.mkdir(parents=True)
    (base / "plan.json").write_text(json.dumps([asdict(each) for each in plan]))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "NODE_RANK": "0"}
    sizes = {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "OMP_NUM_THREADS": "1"}
    processes = [
        subprocess.Popen(
            [sys.executable, "-m", "scripts.bench.late_ranks", str(base)],
            env={**os.environ, **shared, **sizes, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for rank in range(ranks)
    ]
    try:
        errors = [process.communicate(timeout=190)[1] for process in processes]
    finally:
        for process in processes:
            process.kill()
    if any(process.returncode for process in processes):
        raise RuntimeError(b"\n".join(errors).decode(errors="replace")[-4000:])


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedFit:
    """One fit: what was planted, what was said, and whether that is right."""

    loop: str
    ranks: int
    name: str
    kind: str
    planted: list[tuple[int, str]]
    named: list[tuple[int, str]]
    sleeps: int
    """Ranks that sleep, late or not."""
    work_s: float
    """What all ranks do in every forward."""
    right: bool
    size_right: bool
    """Whether every named cause is within 10 % or 1 ms of its sleep."""
    off_s: float
    """The largest difference of a cause to its sleep."""
    step_s: float
    without_s: float
    """What the report says that a step takes without the late ranks, at best."""
    who: str


def judge(base: Path) -> Iterator[JudgedFit]:
    """All fits whose records are in *base*."""
    for each in json.loads((base / "plan.json").read_text()):
        plan = PlannedFit(**{**each, "sleeps": tuple(map(tuple, each["sleeps"]))})
        yield _judged(plan, summarize(Run.open(base / plan.name)))


def _judged(plan: PlannedFit, summary: Summary) -> JudgedFit:
    ranks = summary.run.world_size
    truth = truth_of(plan, ranks)
    late = [(each, point.point) for point in summary.synchronisation for each in point.late]
    named = {(each.rank, each.cause or ""): each.cause_s or 0.0 for each, _ in late}
    off = [abs(named[key] - size_s) for key, size_s in truth.items() if key in named]
    sizes = [max(TOLERATED * size_s, TOLERATED_S) for key, size_s in truth.items() if key in named]
    step_s = summary.value(STEP_MEAN_S) or 0.0
    who = " ".join(point.who for point in summary.synchronisation)
    return JudgedFit(
        loop=plan.loop,
        ranks=ranks,
        name=plan.name,
        kind=_kind(plan),
        planted=sorted(truth),
        sleeps=len(plan.sleeps),
        work_s=plan.base_s,
        named=sorted(named),
        right=named.keys() == truth.keys() and len(late) == len(named) and "too" not in who,
        size_right=all(error <= most for error, most in zip(off, sizes, strict=True)),
        off_s=max(off, default=0.0),
        step_s=step_s,
        without_s=max(0.0, step_s - saved_s(summary, "named_s")),
        who=who,
    )


def truth_of(plan: PlannedFit, ranks: int) -> dict[tuple[int, str], float]:
    """Rank and phase to the sleep that others wait for.

    Where all ranks sleep between the same points the last one is late by what it sleeps longer;
    those that sleep as long arrive together, and nobody waits.
    """
    if plan.rotating:
        return {}
    sides = {plan.loop == "lightning" and place in AFTER for _, place, _ in plan.sleeps}
    if len(plan.sleeps) == ranks and len(sides) == 1:
        *_, before, (rank, place, size_s) = sorted(plan.sleeps, key=lambda sleep: sleep[2])
        more_s = size_s - before[2]
        return {(rank, PHASES.get(place, place)): more_s} if more_s else {}
    return {(rank, PHASES.get(place, place)): size_s for rank, place, size_s in plan.sleeps}


def _kind(plan: PlannedFit) -> str:
    if plan.rotating:
        return "in turns"
    if plan.meeting:
        return "second meeting"
    base = "long step, " if plan.base_s > BASE_S else ""
    if not plan.sleeps:
        return f"{base}healthy"
    if len(plan.sleeps) > 1:
        return "two slow ranks"
    return f"{base}{1e3 * plan.sleeps[0][2]:.0f} ms"


def shown(fits: Sequence[JudgedFit]) -> str:
    """Counts by kind."""
    rows = []
    groups = dict.fromkeys((each.loop, each.ranks, each.kind) for each in fits)
    for loop, ranks, kind in groups:
        mine = [each for each in fits if (each.loop, each.ranks, each.kind) == (loop, ranks, kind)]
        right, sizes = sum(each.right for each in mine), sum(each.size_right for each in mine)
        worst = max(each.off_s for each in mine)
        short = sum("too_few_steps" in each.who for each in mine)
        counts = [f"{right} of {len(mine)}", str(short), f"{sizes} of {len(mine)}"]
        counts.append(f"{1e3 * worst:.2f} ms")
        rows.append([loop, str(ranks), kind, *counts])
    head = ["loop", "ranks", "planted", "named right", "too few steps", "size right", "size off by"]
    return table(head, rows)


def predictions(fits: Sequence[JudgedFit]) -> list[dict[str, object]]:
    """Steps predicted without the late ranks, against the healthy fits of the same kind."""
    rows: list[dict[str, object]] = []
    for each in fits:
        prefix = "long step, " if each.kind.startswith("long step") else ""
        if not each.planted or not each.right or each.kind in ("in turns", "second meeting"):
            continue
        if len(each.planted) < each.sleeps:
            continue  # the rank that is not late sleeps on
        healthy = [
            other.step_s
            for other in fits
            if (other.loop, other.ranks) == (each.loop, each.ranks)
            and other.kind == f"{prefix}healthy"
        ]
        if healthy:
            healthy_s = sum(healthy) / len(healthy)
            off = each.without_s / healthy_s - 1
            rows.append(
                {"loop": each.loop, "ranks": each.ranks, "name": each.name, "work_s": each.work_s}
                | {"predicted_s": each.without_s, "trained_s": healthy_s, "off": off}
            )
    return rows


def _foreseen(rows: Sequence[dict[str, object]], work_s: float) -> str:
    mine = [row for row in rows if row["work_s"] == work_s]
    off = [abs(float(str(row["off"]))) for row in mine]
    within = sum(each <= 0.05 for each in off)
    return f"{1e3 * work_s:.0f} ms of work: {within} of {len(off)} within 5 %, worst {max(off):.1%}"


def main() -> None:
    """Fit, or judge what was fitted."""
    parser = arguments(__doc__)
    parser.add_argument("--fit", type=Path)
    parser.add_argument("--loop", choices=("lightning", "plain"), default="lightning")
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--turn", type=int, default=0)
    parser.add_argument("--matrix", type=float, nargs="+", default=[], metavar="MS")
    parser.add_argument("--healthy", type=int, default=20, help="fits without a sleep, of a matrix")
    parser.add_argument("--work", type=float, metavar="MS", help="default: sleep 10 ms")
    parser.add_argument("--every", type=int, default=1, help="of the ranks at a place, in a matrix")
    parser.add_argument("--judge", type=Path, nargs="*", default=[])
    options = parser.parse_args()
    if options.fit is not None:
        plan = (
            matrix_of(options.loop, options.ranks, options.matrix, options.healthy, options.every)
            if options.matrix
            else plan_of(options.loop, options.ranks, options.turn)
        )
        if options.work:
            plan = working(plan, options.work)
        fit(options.fit, plan, options.ranks)
    fits = [each for base in options.judge for each in judge(base)]
    if not fits:
        return
    foreseen = predictions(fits)
    sys.stdout.write(shown(fits) + "\n")
    for each in fits:
        if not (each.right and each.size_right):
            sys.stdout.write(f"wrong: {each}\n")
    for work_s in sorted({float(str(row["work_s"])) for row in foreseen}):
        sys.stdout.write(f"step without the late ranks, {_foreseen(foreseen, work_s)}\n")
    write_json(options.json, {"fits": [asdict(each) for each in fits], "predictions": foreseen})


if __name__ == "__main__":
    main()
