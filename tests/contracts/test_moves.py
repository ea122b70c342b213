"""After each event of a framework the slot is current that the framework's table names.

The tables are those that the adapters switch by, and that the pictures are drawn from.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
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

from trainperf.core.phases import GAPS, PHASES, Gap, Phase
from trainperf.huggingface import moves as hugging_face_moves
from trainperf.lightning import TrainPerf
from trainperf.lightning import actions as lightning_actions
from trainperf.lightning.actions import ROLES, Action
from trainperf.lightning.relay import ProfilerRelay
from trainperf.loop import LoopMonitor
from trainperf.loop import phase_contexts as monitor_moves
from trainperf.loop.moves import Move
from trainperf.plugins import outside_moves
from trainperf.plugins.outside_updates import ProcessUpdates
from trainperf.recording.recorder import Recorder


__all__ = ["one_thread", "updates"]

pytestmark = [pytest.mark.filterwarnings("ignore:.*"), pytest.mark.usefixtures("one_thread")]

SLOTS = (*PHASES, *GAPS)


@dataclass
class Watched:
    """Looks at the current slot, and holds it against a table."""

    moves: Mapping[Any, Move]
    recorder: Recorder | None = None
    events: set[Any] = field(default_factory=set)
    """Those that were seen to move what the table says."""
    wrong: list[str] = field(default_factory=list)

    def slot(self) -> int:
        """The current one."""
        assert self.recorder is not None
        return int(self.recorder.slot)

    def during(self, event: Any, slot: int | None = None) -> None:
        """An event goes on."""
        self._check(
            event, "during", self.moves[event].during, self.slot() if slot is None else slot
        )

    def after(self, event: Any, otherwise: int | None = None) -> None:
        """An event is over, before which another slot may have been current."""
        expected = self.moves[event].after
        self._check(event, "after", otherwise if expected is None else expected, self.slot())

    def _check(self, event: Any, place: str, expected: int | None, slot: int) -> None:
        self.events.add(event)
        if expected is not None and slot != expected:
            self.wrong.append(f"{event} {place}: {SLOTS[slot].label}, not {SLOTS[expected].label}")


# -- Lightning ------------------------------------------------------------------------------------


class Bracket:
    """Around the relay's bracket of an action: which slot is current before, in and after it."""

    def __init__(self, name: str, ours: Any, watched: Watched, interrupted: list[int]) -> None:
        action = Action.parse(name)
        kind = action.kind if (action.kind, action.hook) in ROLES else "*"
        self._key = (kind, action.hook)
        self._role = ROLES.get(self._key, "nothing")
        self._ours = nullcontext() if ours is None else ours
        self._watched, self._interrupted = watched, interrupted
        self._open: list[tuple[int, int]] = []

    def __enter__(self) -> None:
        before = self._watched.slot()
        self._ours.__enter__()
        self._open.append((before, self._watched.slot()))

    def __exit__(self, *error: object) -> None:
        self._ours.__exit__(*error)
        before, inside = self._open.pop()
        watched, role = self._watched, self._role
        if role not in watched.moves or error[0] is not None or self._rests(before):
            return
        if role == "backward_begins":
            self._interrupted.append(before)
        elif role == "backward_ends":  # every callback has such a hook: the first one ends it
            before = self._interrupted.pop() if self._interrupted else before
        watched.events.add(self._key)
        watched.during(role, inside)
        if role != "fetch" or before != Phase.FORWARD:
            watched.after(role, before)

    def _rests(self, before: int) -> bool:
        """Inside a gap no event of a step moves anything, and no validation begins."""
        if before not in GAPS:
            return False
        begins = self._role == "validation_begins"
        checks = self._role == "validation" and before != Gap.VALIDATION
        return begins or checks or self._watched.moves[self._role].during in PHASES


class WatchActions(pl.Callback):
    """Looks at the slots of a fit that another callback measures."""

    def __init__(self, measures: TrainPerf, watched: Watched) -> None:
        self.measures, self.watched = measures, watched

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:
        """The relay is in its place."""
        del pl_module, stage
        relay, watched, interrupted = trainer.profiler, self.watched, []
        assert isinstance(relay, ProfilerRelay)
        assert self.measures.session is not None
        watched.recorder = self.measures.session.recorder
        make = relay._make
        relay._make = lambda name: Bracket(name, make(name), watched, interrupted)
        relay.renew()


class Rich(Validated):
    """Validates, schedules and has a hook of its own."""

    def configure_optimizers(self) -> Any:
        """SGD whose rate is stepped every step."""
        sgd = torch.optim.SGD(self.parameters(), lr=0.1)
        scheduler = torch.optim.lr_scheduler.StepLR(sgd, 1)
        return {"optimizer": sgd, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_train_batch_end(self, *_: Any) -> None:
        """Nothing."""

    def val_dataloader(self) -> Loader:
        """One batch."""
        return Loader(1)


class Manual(Rich):
    """Optimizes by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """One update."""
        self.manual_backward(self.loss(batch))
        self.optimizers().step()


class Fetching(Rich):
    """Takes its batches by itself."""

    def training_step(self, dataloader_iter: Any) -> Any:
        """The loss of the next one."""
        batch, _, _ = next(dataloader_iter)
        return self.loss(batch)


def test_actions_of_lightning_move_what_its_table_says(tmp_path: Path) -> None:
    """In automatic and in manual optimization, and where the step fetches by itself."""
    watched = Watched(lightning_actions.MOVES)
    for model, options in (
        (Rich(), {"accumulate_grad_batches": 2, "reload_dataloaders_every_n_epochs": 1}),
        (Rich(), {}),
        (Manual(), {}),
        (Fetching(), {}),
    ):
        measures = TrainPerf(report=False, lines=False, machine=False, dirpath=tmp_path / "runs")
        saves = ModelCheckpoint(tmp_path / "kept", every_n_train_steps=2, save_top_k=-1)
        rich = {"num_sanity_val_steps": 1, "max_epochs": 2, "val_check_interval": 3, **options}
        fit = trainer(
            tmp_path,
            measures,
            WatchActions(measures, watched),
            saves,
            enable_checkpointing=True,
            **rich,
        )
        fit.fit(model, Loader(6))

    assert watched.wrong == []
    moving = {key for key, role in ROLES.items() if role in lightning_actions.MOVES}
    assert {*moving} - watched.events == set()


# -- Hugging Face ---------------------------------------------------------------------------------


class Slots(TrainerCallback):
    """Tells which slot is current at each event of a Trainer."""

    def __init__(self, tell: Callable[[str], object]) -> None:
        for event in hugging_face_moves.MOVES:
            setattr(self, event, lambda *_, event=event, **__: tell(event))


class Heard(hugging_face.Tiny):
    """Tells when it is called, and when its first gradient is there."""

    def __init__(self, called: Callable[[], object], gradient: Callable[[], object]) -> None:
        super().__init__()
        self.called, self.gradient = called, gradient

    def forward(
        self, x: torch.Tensor, attention_mask: torch.Tensor, labels: torch.Tensor
    ) -> dict[str, torch.Tensor]:
        """As the tiny one."""
        if self.training:
            self.called()
        out = super().forward(x, attention_mask, labels)
        if out["logits"].requires_grad:
            out["logits"].register_hook(lambda _: self.gradient())
        return out


def test_events_of_a_hugging_face_trainer_move_what_its_table_says(tmp_path: Path) -> None:
    """With accumulation, logging, evaluation and checkpoints; a CPU copies nothing."""
    moves = hugging_face_moves
    watched = Watched(moves.MOVES)
    measures = hugging_face.quiet(dirpath=tmp_path / "runs", machine=False)
    before: dict[str, int] = {}

    def ahead(event: str) -> None:
        if measures.training is None:
            return
        watched.recorder = measures.training.recorder
        before[event] = watched.slot()
        if event == "on_pre_optimizer_step":
            watched.after(moves.BACKWARD)
        elif event == "on_step_begin":
            watched.after(moves.BATCH)

    paused: list[int] = []

    def behind(event: str) -> None:
        slot, earlier = watched.slot(), before.get(event, int(Gap.STARTUP))
        if event in ("on_step_end", "on_log", "on_evaluate") and slot in (
            Gap.VALIDATION,
            Gap.CHECKPOINT,
        ):
            watched.events.add(event)
            paused.append(slot)
            return  # what the Trainer does next
        over = event in ("on_evaluate", "on_predict", "on_save") and earlier in GAPS
        watched.after(event, int(Phase.CALLBACKS) if over else earlier)

    def called() -> None:
        watched.after(moves.FORWARD)

    training = hugging_face.trainer(
        tmp_path,
        Slots(ahead),
        measures,
        Slots(behind),
        model=Heard(called, lambda: watched.during(moves.BACKWARD)),
        rows=hugging_face.Rows(24, lambda: measures.training and watched.during(moves.BATCH)),
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
    assert {Gap.VALIDATION, Gap.CHECKPOINT} == set(paused)
    assert {*moves.MOVES} - watched.events == {moves.COPY, "on_predict"}


# -- loops of one's own ---------------------------------------------------------------------------


def test_calls_of_a_monitor_move_what_its_table_says() -> None:
    """Each phase and gap, the end of a step, of an epoch and of the fit."""
    moves = monitor_moves.MOVES
    monitor = LoopMonitor(None, report=False, lines=False, machine=False)
    watched = Watched(moves, monitor.monitor.recorder)

    def loader() -> Iterator[int]:
        for batch in range(3):
            watched.during(monitor_moves.NEXT)
            yield batch

    for _ in monitor.batches(loader()):
        watched.after(monitor_moves.NEXT)
        for event in [event for event in moves if event.startswith("phase(")]:
            earlier = watched.slot()
            with monitor.phase(event.split('"')[1]):
                watched.during(event)
            watched.after(event, earlier)
        monitor.end_step()
        watched.after(monitor_moves.END_STEP)
    watched.after("end of batches(loader)")
    monitor.close()
    watched.after("close()")

    assert watched.wrong == []
    assert watched.events == set(moves)


class Rows(torch.utils.data.Dataset[torch.Tensor]):
    """Eight rows; tells as each is asked for."""

    def __init__(self, asked_for: Callable[[], object]) -> None:
        self.asked_for = asked_for

    def __len__(self) -> int:
        return 8

    def __getitem__(self, place: int) -> torch.Tensor:
        self.asked_for()
        return torch.ones(4)


class Returning(torch.nn.Module):
    """Returns its loss, and tells when it is called and when its gradient is there."""

    def __init__(self, tell: Callable[[str, str], object]) -> None:
        super().__init__()
        self.layers = network()
        self.tell = tell

    def forward(self, rows: torch.Tensor) -> torch.Tensor:
        """The mean of the output."""
        self.tell("after", outside_moves.FORWARD if self.training else outside_moves.EVALUATION)
        out = self.layers(rows)
        if out.requires_grad:
            out.register_hook(lambda _: self.tell("during", outside_moves.FIRST_GRADIENT))
        mean: torch.Tensor = out.mean()
        return mean


def test_calls_that_are_heard_from_outside_move_what_the_table_says(
    updates: ProcessUpdates,
) -> None:
    """From the second update on, since a recording begins with the end of the first."""
    moves = outside_moves
    watched = Watched(moves.MOVES)
    hears_loaders = sys.version_info >= (3, 12)

    def tell(place: str, event: str) -> None:
        waits = event in (moves.FETCH, moves.UPDATE) and place + event != "during" + moves.UPDATE
        if updates._loop is not None and (hears_loaders or not waits):
            watched.recorder = updates._loop.recorder
            getattr(watched, place)(event)

    model = Returning(tell)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rows = Rows(lambda: tell("during", moves.FETCH))
    for step, batch in enumerate(DataLoader(rows, batch_size=1)):
        tell("after", moves.FETCH)
        loss = model(batch)
        tell("after", moves.RETURN)
        loss.backward()
        tell("after", moves.BACKWARD_ENDS)
        handle = optimizer.register_step_pre_hook(lambda *_: tell("during", moves.UPDATE))
        optimizer.step()
        handle.remove()
        tell("after", moves.UPDATE)
        if step == 5:
            model.eval()
            with torch.no_grad():
                model(batch)
            model.train()
        optimizer.zero_grad()

    assert watched.wrong == []
    assert set(moves.MOVES) - watched.events == ({moves.FETCH} - {hears_loaders and moves.FETCH})
