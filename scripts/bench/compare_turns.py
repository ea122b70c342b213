"""Pairs of identical runs that take turns ten steps at a time, for `scripts.bench.compare`.

Every run has a process of its own, as `trainperf prove` launches them; here they are forked, and
nothing is imported anew.
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

from scripts.bench.compare_loops import KINDS, Extra, train
from scripts.bench.compare_record import CLOCKS, Bench, Plan, RecordedRun, Walls, read_back
from trainperf.core.interleaving import Participant, Referee, new_address


PAIRS = 10
"""On either side of a comparison."""

STEPS = 80
"""Of a run: about 50 are steady, so that a side has 500."""

# Nothing here has computed on several threads, so a fork finds no lock that nobody will open.
_PROCESSES = multiprocessing.get_context("fork")


def to_record(session: str, split: str, kind: str, clock: str = "wall") -> RecordedRun:
    """A run by turns that has no steps yet."""
    return RecordedRun(
        session=session,
        split=split,
        kind=kind,
        mode="by turns",
        process="same",
        extra=0,
        truth=0.0,
        began_s=0.0,
        walls=np.empty(0, dtype=np.int64),
        clock=clock,
    )


def session_by_turns(name: str, split: str, plan: Plan) -> Iterator[RecordedRun]:
    """Record what a plan wants of these: every kind of the split in turn."""
    torch.set_num_threads(1)
    for kind, make in KINDS[split].items():
        Bench(session=name, split=split, kind=kind, make=make).recorded("warm", STEPS)  # imports
        like = to_record(name, split, kind, plan.clock)
        for _ in range(plan.by_turns):
            yield from by_turns(like)
        if plan.by_turns_planted:
            bench = Bench(session=name, split=split, kind=kind, make=make, clock=plan.clock)
            units, truth = bench.calibrated()
            planted = replace(like, mode="by turns, planted", extra=units, truth=truth)
            for _ in range(plan.by_turns_planted):
                yield from by_turns(planted)


def by_turns(like: RecordedRun, pairs: int = PAIRS) -> Iterator[RecordedRun]:
    """One comparison: before and after, pair by pair, each run in a process of its own.

    Args:
        like: What the runs have in common; `extra` and `truth` are those of the runs after.
        pairs: Of runs.
    """
    for _ in range(pairs):
        with new_address() as address, Referee(address):
            sides = [_begun(like, Participant(address=str(address), side=side)) for side in (0, 1)]
            for side, (process, walls) in enumerate(sides):
                yield _with(like, walls.recv(), extra=bool(side))
                process.join()


def _begun(
    like: RecordedRun, place: Participant
) -> "tuple[multiprocessing.process.BaseProcess, Connection[None, Walls]]":
    here, there = _PROCESSES.Pipe(duplex=False)
    extra = like.extra if place.side else 0
    process = _PROCESSES.Process(
        target=_side, args=(place, like.split, like.kind, like.clock, extra, there)
    )
    process.start()
    there.close()
    return process, here


def _side(
    place: Participant,
    split: str,
    kind: str,
    clock: str,
    extra: int,
    sender: "Connection[Walls, None]",
) -> None:
    os.environ.update(place.variable())
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as run:
        path = train(KINDS[split][kind](), STEPS, Path(run), Extra((extra,)), CLOCKS[clock])
        sender.send(read_back(path).wall_ns.astype(np.int64))


def _with(like: RecordedRun, walls: Walls, *, extra: bool) -> RecordedRun:
    if extra:
        return replace(like, walls=walls)
    return replace(like, walls=walls, extra=0, truth=0.0)
