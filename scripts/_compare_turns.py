"""Pairs of identical runs that take turns ten steps at a time, for `bench_compare.py`.

Both sides of a comparison run at once, each in a process of its own, as `trainperf prove` launches
them; here a process trains all runs of its side, one after the other.
"""

import multiprocessing
import os
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np
import torch
from _compare_loops import KINDS, Extra, train
from _compare_record import CLOCKS, Bench, Plan, Recorded, Walls, steady_steps

from trainperf.turns import Place, Referee


PAIRS = 10
"""On either side of a comparison."""

STEPS = 80
"""Of a run: about 50 are steady, so that a side has 500."""

_PROCESSES = multiprocessing.get_context("forkserver")
_PROCESSES.set_forkserver_preload(["trainperf.loop", "_compare_record"])


def session_by_turns(name: str, split: str, plan: Plan) -> Iterator[Recorded]:
    """Record what a plan wants of these: every kind of the split in turn."""
    torch.set_num_threads(1)
    for kind, make in KINDS[split].items():
        like = Recorded(
            session=name,
            split=split,
            kind=kind,
            mode="by turns",
            process="same",
            extra=0,
            truth=0.0,
            began_s=0.0,
            walls=np.empty(0, dtype=np.int64),
            clock=plan.clock,
        )
        for _ in range(plan.by_turns):
            yield from by_turns(like)
        if plan.by_turns_planted:
            bench = Bench(session=name, split=split, kind=kind, make=make, clock=plan.clock)
            units, truth = bench.calibrated()
            planted = replace(like, mode="by turns, planted", extra=units, truth=truth)
            for _ in range(plan.by_turns_planted):
                yield from by_turns(planted)


def by_turns(like: Recorded, pairs: int = PAIRS) -> Iterator[Recorded]:
    """One comparison: before and after, pair by pair.

    Args:
        like: What the runs have in common; `extra` and `truth` are those of the runs after.
        pairs: Of runs.
    """
    with tempfile.TemporaryDirectory() as folder:
        address = Path(folder) / "turns"
        with Referee(address) as referee:
            sides = [_begun(like, Place(address=str(address), side=side), pairs) for side in (0, 1)]
            for _ in range(pairs):
                for side, (_, walls) in enumerate(sides):
                    yield _with(like, walls.recv(), extra=bool(side))
            for side, (process, _) in enumerate(sides):
                process.join()
                referee.gone(side)


def _begun(
    like: Recorded, place: Place, pairs: int
) -> "tuple[multiprocessing.process.BaseProcess, Connection[None, Walls]]":
    here, there = _PROCESSES.Pipe(duplex=False)
    extra = like.extra if place.side else 0
    process = _PROCESSES.Process(
        target=_side, args=(place, like.split, like.kind, like.clock, extra, pairs, there)
    )
    process.start()
    there.close()
    return process, here


def _side(
    place: Place,
    split: str,
    kind: str,
    clock: str,
    extra: int,
    pairs: int,
    found: "Connection[Walls, None]",
) -> None:
    os.environ.update(place.variable())
    torch.set_num_threads(1)
    for _ in range(pairs):
        torch.manual_seed(0)
        with tempfile.TemporaryDirectory() as run:
            path = train(KINDS[split][kind](), STEPS, Path(run), Extra((extra,)), CLOCKS[clock])
            found.send(steady_steps(path).wall_ns.astype(np.int64))


def _with(like: Recorded, walls: Walls, *, extra: bool) -> Recorded:
    if extra:
        return replace(like, walls=walls)
    return replace(like, walls=walls, extra=0, truth=0.0)
