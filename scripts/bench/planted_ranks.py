"""Fits on two gloo ranks, one of which sleeps, for `scripts.bench.accuracy`.

The other rank waits for it: in backward, where the gradients meet, or between two steps, where
Lightning's own broadcast does.  The truth is the sleep as the sleeping rank measured it.
"""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import lightning.pytorch as pl
import torch

from scripts.bench.harness import quiet
from scripts.bench.planted import At, Model, steps
from scripts.bench.truth import Sleeper, TruthCase, duration, recorded
from trainperf.core.phases import Phase
from trainperf.lightning import TrainPerf


SLOW_RANK = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TailPlace:
    """Where rank 1 sleeps, and what of rank 0 should tell."""

    name: str
    hook: str
    reading: str


PLACES: Mapping[str, TailPlace] = {
    "before": TailPlace(
        name="rank 1 before backward", hook="on_train_batch_start", reading="tail of rank 0"
    ),
    "after": TailPlace(
        name="rank 1 at batch end", hook="on_train_batch_end", reading="loop of rank 0"
    ),
}


def sleeping_rank(key: str) -> Callable[[int], TruthCase]:
    """One of the places."""
    place = PLACES[key]

    def case(events: int) -> TruthCase:
        with tempfile.TemporaryDirectory() as scratch:
            _launch(key, events, scratch)
            slept_ns = json.loads((Path(scratch) / "slept.json").read_text())
            run = recorded(Path(scratch) / "trainperf", rank=0)
        tail = run.fact_by_step("tail_ns")
        loop = dict(enumerate(run.phase_ns(Phase.LOOP)))
        waited, other = (tail, loop) if key == "before" else (loop, tail)
        # The tail is unknown until the last parameter is; nobody waits after the last step.
        steps_known = sorted(tail)[:-1]
        return duration(
            place.name,
            place.reading,
            [slept_ns[step] for step in steps_known],
            [waited[step] for step in steps_known],
            [[other[step] for step in steps_known]],
        )

    return case


def _launch(key: str, events: int, scratch: str) -> None:
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


def _rank(key: str, events: int, scratch: Path) -> None:
    """One of the two processes."""
    torch.set_num_threads(1)
    slow = int(os.environ["LOCAL_RANK"]) == SLOW_RANK
    sleeper = Sleeper()
    callbacks = [At(PLACES[key].hook, sleeper)] if slow else []
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
            callbacks=[*callbacks, TrainPerf()],
            default_root_dir=scratch,
        )
        trainer.fit(Model(), steps(2 * events))
    if slow:
        (scratch / "slept.json").write_text(json.dumps(sleeper.slept_ns))


if __name__ == "__main__":
    _rank(sys.argv[1], int(sys.argv[2]), Path(sys.argv[3]))
