"""Fits on two gloo ranks, one of which sleeps, for `scripts.bench.accuracy`.

The other rank waits for it: in backward, where the gradients meet, or between two steps, where
Lightning's own broadcast does.  One truth is the sleep, as the sleeping rank measured it; but a
rank need not wait for as long as another sleeps.  So the waiting rank has a clock of its own around
the place, with trainperf and without.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import lightning.pytorch as pl
import torch
from lightning.pytorch.callbacks import Callback
from torch.utils.data import DataLoader

from scripts.bench.harness import quiet
from scripts.bench.planted import At, Model, PlantedSamples, steps
from scripts.bench.truth import Sleeper, TruthCase, duration, independent_ns, recorded
from trainperf.core.phases import Phase
from trainperf.lightning import TrainPerf


SLOW_RANK = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPlace:
    """Where rank 1 sleeps, and what of rank 0 should tell."""

    name: str
    hook: str
    reading: str
    clock: str


PLACES: Mapping[str, TailPlace] = {
    "before": TailPlace(
        name="rank 1 before backward",
        hook="on_train_batch_start",
        reading="tail of rank 0",
        clock="rank 0's clock around backward",
    ),
    "after": TailPlace(
        name="rank 1 at batch end",
        hook="on_train_batch_end",
        reading="loop of rank 0",
        clock="rank 0's clock between steps",
    ),
}


def sleeping_rank(key: str) -> Callable[[int], list[TruthCase]]:
    """One of the places."""
    place = PLACES[key]

    def cases(events: int) -> list[TruthCase]:
        with tempfile.TemporaryDirectory() as scratch:
            slept_ns, clocked_ns = _launch(key, events, scratch)
            run = recorded(Path(scratch) / "trainperf", rank=0)
        with tempfile.TemporaryDirectory() as scratch:
            bare_slept_ns, bare_clocked_ns = _launch(f"{key} bare", events, scratch)
        tail = run.fact_by_step("tail_ns")
        loop = dict(enumerate(run.phase_ns(Phase.LOOP)))
        waited, other = (tail, loop) if key == "before" else (loop, tail)
        # Nobody waits after the last step, and Lightning reads ahead.
        last = min(len(clocked_ns), len(bare_clocked_ns))
        steps_known = [step for step in sorted(tail)[:-1] if step < last]

        def in_order(values: Sequence[float] | Mapping[int, float]) -> list[float]:
            return [values[step] for step in steps_known]

        others = [in_order(other)]
        return [
            duration(place.name, place.reading, in_order(slept_ns), in_order(waited), others),
            duration(place.clock, place.reading, in_order(clocked_ns), in_order(waited), others),
            duration(
                f"{place.name}, no trainperf",
                place.clock,
                in_order(bare_slept_ns),
                in_order(bare_clocked_ns),
            ),
        ]

    return cases


def _launch(key: str, events: int, scratch: str) -> tuple[list[int], list[int]]:
    """What rank 1 slept, and what rank 0 waited by its own clock, in every step."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "scripts.bench.planted_ranks", key, str(events), scratch],
            env={**environment, "LOCAL_RANK": str(rank), "NODE_RANK": "0"},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        for rank in range(2)
    ]
    errors = [rank.communicate(timeout=180)[1] for rank in ranks]
    if any(rank.returncode for rank in ranks):
        raise RuntimeError(b"\n".join(errors).decode(errors="replace")[-4000:])
    clocked, slept = (json.loads((Path(scratch) / f"{n}.json").read_text()) for n in range(2))
    return slept, clocked


class _Clock:
    """The independent one, between two calls of the loop."""

    def __init__(self) -> None:
        self.begun_ns = 0
        self.spent_ns: list[int] = []

    def begins(self) -> None:
        self.begun_ns = independent_ns()

    def ends(self) -> None:
        if self.begun_ns:
            self.spent_ns.append(independent_ns() - self.begun_ns)


class _Clocked(Model):
    """Has its backward between two calls of a clock."""

    def __init__(self, clock: _Clock) -> None:
        super().__init__()
        self._clock = clock

    def backward(self, loss: torch.Tensor) -> None:
        """Lightning's."""
        self._clock.begins()
        super().backward(loss)
        self._clock.ends()


def _rank(key: str, events: int, scratch: Path) -> None:
    """One of the two processes."""
    torch.set_num_threads(1)
    rank = int(os.environ["LOCAL_RANK"])
    key, _, bare = key.partition(" ")
    sleeper, clock = Sleeper(), _Clock()
    callbacks: list[Callback] = [At(PLACES[key].hook, sleeper)] if rank == SLOW_RANK else []
    loader, model = steps(2 * events), Model()
    if rank != SLOW_RANK and key == "before":
        model = _Clocked(clock)
    elif rank != SLOW_RANK:
        callbacks.append(At("on_train_batch_end", clock.begins))
        loader = DataLoader(PlantedSamples(2 * events, clock.ends))
    with quiet():
        trainer = pl.Trainer(
            accelerator="cpu",
            devices=2,
            strategy="ddp",
            max_epochs=1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            callbacks=[*callbacks, *([] if bare else [TrainPerf()])],
            default_root_dir=scratch,
        )
        trainer.fit(model, loader)
    (scratch / f"{rank}.json").write_text(
        json.dumps(sleeper.slept_ns if rank == SLOW_RANK else clock.spent_ns)
    )


if __name__ == "__main__":
    _rank(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
