"""Record the logs that `test_replay.py` replays: `python tests/lightning/record_logs.py`.

Real fits, and what Lightning announced in them: rows of microseconds since the first, `start`,
`stop` or `done` (a micro-batch is over), and the number of the name (for `done`, whether the
group was complete).
"""

import json
import tempfile
import time
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.profilers import Profiler
from support.fits import At, Loader, Model, Stream, Validated, awake, trainer
from torch.utils.data import DataLoader

from trainperf.lightning import TrainPerf
from trainperf.lightning.actions import Action


LOGS = Path(__file__).parent / "logs"
OURS = "[Callback]TrainPerf.on_train_batch_end"


class Diary(Profiler):
    """Keeps what begins and ends, and when."""

    def __init__(self, perf: TrainPerf) -> None:
        super().__init__()
        self.perf = perf
        self.begun = time.perf_counter_ns()
        self.names: dict[str, int] = {}
        self.own: dict[str, bool] = {}
        self.rows: list[list[Any]] = []

    def start(self, action_name: str) -> None:
        """Keep it."""
        self._keep("start", self._number(action_name))

    def stop(self, action_name: str) -> None:
        """Keep it, and what our callback has concluded."""
        session = self.perf.session
        if action_name == OURS and session is not None:
            self._keep("done", session.recorder.awaits_batch)
        self._keep("stop", self._number(action_name))

    def log(self) -> dict[str, Any]:
        """What to write: each name with whether its hook is more than Lightning's no-op."""
        names = [{"name": name, "own": self.own[name]} for name in self.names]
        return {"names": names, "rows": self.rows}

    def _keep(self, kind: str, value: int) -> None:
        now_us = (time.perf_counter_ns() - self.begun) // 1000
        self.rows.append([now_us, kind, value])

    def _number(self, name: str) -> int:
        session = self.perf.session
        if session is not None:
            self.own[name] = session._overridden(Action.parse(name))
        else:
            self.own.setdefault(name, False)
        return self.names.setdefault(name, len(self.names))


class AtBackward(At):
    """A second callback, told from the first by its name."""


class Iterating(Model):
    """Fetches by itself."""

    def training_step(self, dataloader_iter: Any) -> Any:
        """One batch a step."""
        return self.loss(next(dataloader_iter)[0])


class Stumbling(Model):
    """Manual optimization, in which the first of two updates fails and is caught."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """One update that fails, one that does not."""
        optimizer = self.optimizers()
        self.manual_backward(self.loss(batch))

        def fail() -> None:
            raise LookupError("planted")

        try:
            optimizer.step(closure=fail)
        except LookupError:
            optimizer.step()


def record(
    name: str, model: pl.LightningModule, data: Any, *callbacks: Any, **options: Any
) -> None:
    """One fit, one file."""
    perf = TrainPerf(report=False)
    with tempfile.TemporaryDirectory() as root:
        diary = Diary(perf)
        training = trainer(Path(root), perf, *callbacks, profiler=diary, **options)
        training.fit(model, data)
    LOGS.mkdir(exist_ok=True)
    (LOGS / f"{name}.json").write_text(json.dumps(diary.log(), separators=(",", ":")) + "\n")


def main() -> None:
    """All of them."""
    with tempfile.TemporaryDirectory() as kept:

        class SelfValidated(Validated):
            def val_dataloader(self) -> Loader:
                return Loader(1)

        record(
            "automatic",
            SelfValidated(),
            Loader(5),
            At("on_train_batch_end", awake),
            AtBackward("on_after_backward", awake),
            ModelCheckpoint(kept),
            accumulate_grad_batches=2,
            max_epochs=2,
            val_check_interval=3,
            num_sanity_val_steps=1,
            enable_checkpointing=True,
        )
    record("manual", Stumbling(), Loader(3))
    record("unknown_length", Model(), DataLoader(Stream(2), batch_size=None), max_epochs=2)
    record("dataloader_iter", Iterating(), Loader(4), accumulate_grad_batches=2)


if __name__ == "__main__":
    main()
