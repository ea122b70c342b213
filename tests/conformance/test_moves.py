"""After each event of a framework the slot is current that the framework's table names.

The tables are those that the doors switch by, and that the page about events is made from.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from support import hugging_face
from support.fits import Loader, Validated, trainer
from support.outside import network, updates
from support.threads import one_thread
from torch.utils.data import DataLoader
from transformers import TrainerCallback

from trainperf.core.phases import GAPS, PHASES, Gap
from trainperf.huggingface import moves as of_hugging_face
from trainperf.lightning import TrainPerf, actions
from trainperf.lightning.actions import Action, role_of
from trainperf.loop import LoopMonitor
from trainperf.loop.moves import Move
from trainperf.loop.phase_contexts import END_STEP, MOVES, NEXT
from trainperf.plugins import outside_moves
from trainperf.plugins.outside_updates import ProcessUpdates
from trainperf.recording.recorder import Recorder


__all__ = ["one_thread", "updates"]

pytestmark = [pytest.mark.filterwarnings("ignore:.*"), pytest.mark.usefixtures("one_thread")]

SLOTS = (*PHASES, *GAPS)


class Watched:
    """Holds the current slot against a table."""

    def __init__(self, moves: Mapping[Any, Move], recorder: Callable[[], Recorder]) -> None:
        self.moves, self.recorder = moves, recorder
        self.events: set[Any] = set()
        self.wrong: list[str] = []

    @property
    def slot(self) -> int:
        """The current one."""
        return int(self.recorder().slot)

    def during(self, event: Any, slot: int | None = None) -> None:
        """An event goes on; *slot* was current meanwhile, if not the present one."""
        self._check(event, self.moves[event].during, self.slot if slot is None else slot)

    def after(self, event: Any, before: int | None = None) -> None:
        """An event is over, and the slot *before* it goes on unless the table names another."""
        move = self.moves[event]
        self._check(event, before if move.after is None else move.after, self.slot)

    def _check(self, event: Any, expected: int | None, slot: int) -> None:
        self.events.add(event)
        depends = f"`{SLOTS[slot].label}`" in self.moves[event].when
        if expected not in (None, slot) and not depends:
            self.wrong.append(f"{event}: {SLOTS[slot].label}, not {SLOTS[expected].label}")


class Bracket:
    """Around ours of an action of Lightning."""

    def __init__(self, name: str, ours: Any, watched: Watched) -> None:
        self.role = role_of(Action.parse(name), overridden=True)
        self.ours, self.watched = ours, watched
        self.open: list[tuple[int, int]] = []

    def __enter__(self) -> None:
        before = self.watched.slot
        self.ours.__enter__()
        self.open.append((before, self.watched.slot))

    def __exit__(self, *error: object) -> None:
        self.ours.__exit__(*error)
        before, inside = self.open.pop()
        move = self.watched.moves.get(self.role, Move())
        validates = self.role.startswith("validation") and before != Gap.VALIDATION
        if before in GAPS and (validates or move.during in PHASES):
            return  # inside a gap no event of a step moves anything, and no validation begins
        if move in self.watched.moves.values() and error[0] is None:
            self.watched.during(self.role, inside)
            self.watched.after(self.role, before if move.during is not None else None)


class WatchActions(pl.Callback):
    """Looks at the slots of a fit that a callback before it measures."""

    def __init__(self, watched: Watched) -> None:
        self.watched = watched

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """The relay is in its place."""
        relay, watched = trainer.profiler, self.watched
        make = relay._make
        relay._make = lambda name: (ours := make(name)) and Bracket(name, ours, watched)
        relay.renew()


class Rich(Validated):
    """Validates and has a hook of its own."""

    def on_train_batch_end(self, *_: Any) -> None:
        """Nothing."""

    def val_dataloader(self) -> Loader:
        """One batch."""
        return Loader(1)


class Fetching(Rich):
    """Takes its batches by itself."""

    def training_step(self, dataloader_iter: Any) -> Any:
        """The loss of the next one."""
        return self.loss(next(dataloader_iter)[0])


def test_actions_of_lightning_move_what_its_table_says(tmp_path: Path) -> None:
    """With accumulation, validation and checkpoints, and where the step fetches by itself."""
    measures = TrainPerf(report=False, lines=False, machine=False, dirpath=tmp_path / "runs")
    watched = Watched(actions.MOVES, lambda: measures.session.recorder)  # type: ignore[union-attr]
    for model, accumulates in ((Rich(), 2), (Fetching(), 1)):
        saves = ModelCheckpoint(tmp_path / "kept", every_n_train_steps=2, save_top_k=-1)
        fit = trainer(
            tmp_path,
            measures,
            WatchActions(watched),
            saves,
            enable_checkpointing=True,
            num_sanity_val_steps=1,
            max_epochs=2,
            val_check_interval=3,
            accumulate_grad_batches=accumulates,
        )
        fit.fit(model, Loader(6))

    assert watched.wrong == []
    assert watched.events == set(actions.MOVES)


class Slots(TrainerCallback):
    """After each event of a Trainer."""

    def __init__(self, watched: Watched) -> None:
        for event in watched.moves:
            setattr(self, event, lambda *_, event=event, **__: watched.after(event))


def test_events_of_a_hugging_face_trainer_move_what_its_table_says(tmp_path: Path) -> None:
    """With accumulation, logging, evaluation and checkpoints; a CPU copies nothing."""
    moves, measures = of_hugging_face, hugging_face.quiet(dirpath=tmp_path / "runs", machine=False)
    watched = Watched(moves.MOVES, lambda: measures.training.recorder)  # type: ignore[union-attr]
    model = hugging_face.Tiny(lambda: watched.after(moves.FORWARD))

    class Before(TrainerCallback):
        def on_step_begin(self, *_: object, **__: object) -> None:
            watched.after(moves.BATCH)

        def on_pre_optimizer_step(self, *_: object, **__: object) -> None:
            watched.after(moves.BACKWARD)

    model.layer.weight.register_hook(lambda _: watched.during(moves.BACKWARD))
    training = hugging_face.trainer(
        tmp_path,
        Before(),
        measures,
        Slots(watched),
        model=model,
        rows=hugging_face.Rows(24, lambda: watched.during(moves.BATCH)),
        evaluated=hugging_face.Rows(4),
        max_steps=8,
        gradient_accumulation_steps=2,
        logging_strategy="steps",
        logging_steps=3,
        eval_strategy="steps",
        eval_steps=2,
        save_strategy="steps",
        save_steps=4,
    )
    training.train()

    assert watched.wrong == []
    assert set(moves.MOVES) - watched.events == {moves.COPY, "on_predict"}


def test_calls_of_a_monitor_move_what_its_table_says() -> None:
    """Each phase and gap, the end of a step, of an epoch and of the fit."""
    monitor = LoopMonitor(None, report=False, lines=False, machine=False)
    watched = Watched(MOVES, lambda: monitor.monitor.recorder)

    def loader() -> Iterator[int]:
        for batch in range(3):
            watched.during(NEXT)
            yield batch

    for _ in monitor.batches(loader()):
        watched.after(NEXT)
        for event in [event for event in MOVES if event.startswith("phase(")]:
            before = watched.slot
            with monitor.phase(event.split('"')[1]):
                watched.during(event)
            watched.after(event, before)
        monitor.end_step()
        watched.after(END_STEP)
    watched.after("end of batches(loader)")
    monitor.close()
    watched.after("close()")

    assert watched.wrong == []
    assert watched.events == set(MOVES)


class Returning(torch.nn.Module):
    """Returns its loss, and tells when it is called."""

    def __init__(self, called: Callable[[], object]) -> None:
        super().__init__()
        self.layers, self.called = network(), called

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """The mean of the output."""
        self.called()
        return self.layers(rows).mean()


def test_calls_that_are_heard_from_outside_move_what_the_table_says(
    updates: ProcessUpdates,
) -> None:
    """From the second update on, since a recording begins with the end of the first."""
    moves = outside_moves
    watched = Watched(moves.MOVES, lambda: updates.loop.recorder)  # type: ignore[union-attr]
    hears_loaders = sys.version_info >= (3, 12)

    def tell(look: Callable[[str], object], event: str) -> None:
        if updates.loop is not None and (hears_loaders or event != moves.FETCH):
            look(event)

    def collate(rows: list[torch.Tensor]) -> torch.Tensor:
        tell(watched.during, moves.FETCH)
        return torch.stack(rows)

    model = Returning(
        lambda: tell(watched.after, moves.FORWARD if model.training else moves.EVALUATION)
    )
    weight = model.layers.get_parameter("0.weight")
    weight.register_hook(lambda _: tell(watched.after, moves.FIRST_GRADIENT))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    optimizer.register_step_pre_hook(lambda *_: tell(watched.during, moves.UPDATE))
    for step, batch in enumerate(DataLoader(torch.ones(8, 4), collate_fn=collate)):  # type: ignore[arg-type] # rows
        tell(watched.after, moves.FETCH)
        loss = model(batch)
        tell(watched.after, moves.RETURN)
        loss.backward()
        tell(watched.after, moves.BACKWARD_ENDS)
        optimizer.step()
        tell(watched.after, moves.UPDATE)
        if step == 5:
            model.eval()
            with torch.no_grad():
                model(batch)
            model.train()

    assert watched.wrong == []
    assert watched.events == set(moves.MOVES) - ({moves.FETCH} if not hears_loaders else set())
