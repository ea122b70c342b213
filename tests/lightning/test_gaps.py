"""What is not training is cut out of the steps, where it began and where it ended."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
from support.fits import (
    LONG_S,
    SHORT_S,
    At,
    Loader,
    Model,
    Pause,
    Ran,
    Validated,
    planted,
)

from trainperf.core.phases import Gap, Phase, Tag


class ValidationLoader(Loader):
    """Slow to begin, as a loader that starts workers is.  Lightning tries it once at the start."""

    def __iter__(self) -> Iterator[Any]:
        self.slow()
        return iter([self.batch] * self.batches)


class SelfValidated(Validated):
    """A model that brings its validation loader along."""

    def __init__(self, loader: Loader | None = None) -> None:
        super().__init__()
        self.loader = loader or Loader(1)

    def val_dataloader(self) -> Loader:
        """Ready-made batches."""
        return self.loader


def durations(ran: Ran, gap: Gap) -> list[int]:
    """Of each gap of one kind."""
    return [record.duration_ns for record in ran.gaps if record.gap == gap.label]


def test_validation_inside_an_epoch_is_a_gap_that_begins_with_its_loader(tmp_path: Path) -> None:
    """`iter(val_loader)` runs before any hook of the validation, and is its all the same."""
    slow = Pause(LONG_S, SHORT_S, SHORT_S, LONG_S)  # the first is the trial
    ran = planted(
        tmp_path, SelfValidated(ValidationLoader(1, slow=slow)), Loader(8), val_check_interval=2
    )
    assert ran.gap_places(Gap.VALIDATION) == list(range(1, 8, 2))
    assert ran.tagged(Tag.AFTER_VALIDATION) == list(range(2, 8, 2))
    assert durations(ran, Gap.VALIDATION) == slow.slept_ns[1:]
    assert not any(step.wall_ns for step in ran.steps)


def test_a_logger_that_is_slow_just_before_validation_is_still_loop(tmp_path: Path) -> None:
    """The gap begins where validation does, not where the last hook of training ended."""

    class Logging(SelfValidated):
        def training_step(self, batch: Any, batch_idx: int) -> Any:
            self.log("mine", 1.0)
            return super().training_step(batch, batch_idx)

    class Metrics(pl.loggers.CSVLogger):
        def log_metrics(self, metrics: dict[str, float], step: int | None = None) -> None:
            if "mine" in metrics:
                sleeper()

    sleeper = Pause(0.020)
    ran = planted(
        tmp_path,
        Logging(),
        Loader(4),
        logger=Metrics(tmp_path),
        log_every_n_steps=1,
        val_check_interval=1,
    )
    assert ran.phase_ns(Phase.LOOP) == sleeper.slept_ns
    assert not any(durations(ran, Gap.VALIDATION))


def test_validation_between_micro_batches_is_cut_out_of_the_step_it_interrupts(
    tmp_path: Path,
) -> None:
    """Its loader's start too, though no hook at all comes before it there."""
    slow = Pause(0.200)
    ran = planted(
        tmp_path,
        SelfValidated(ValidationLoader(1, slow=slow)),
        Loader(9),
        accumulate_grad_batches=3,
        val_check_interval=4,
    )
    assert ran.micro_batches() == [3, 3, 3]
    assert ran.gap_places(Gap.VALIDATION) == [1, 2]
    assert ran.tagged(Tag.AFTER_VALIDATION) == [1, 2]
    assert ran.gap_ns(Gap.VALIDATION) == sum(slow.slept_ns[1:])
    assert not any(step.wall_ns for step in ran.steps)


def test_a_validation_loader_that_is_made_only_then_is_validations_too(tmp_path: Path) -> None:
    """In the second epoch, between two micro-batches, where nothing else announces it."""

    class LateLoader(SelfValidated):
        def val_dataloader(self) -> Loader:
            sleeper()
            return Loader(1)

    sleeper = Pause(0.060)
    ran = planted(
        tmp_path,
        LateLoader(),
        Loader(5),
        accumulate_grad_batches=3,
        val_check_interval=4,
        check_val_every_n_epoch=2,
        max_epochs=2,
    )
    assert len(sleeper.slept_ns) == 1
    assert ran.micro_batches() == [3, 2, 3, 2]
    assert ran.tagged(Tag.AFTER_VALIDATION) == [3]
    assert ran.gap_ns(Gap.VALIDATION) == sleeper.slept_ns[0]
    assert not any(step.wall_ns for step in ran.steps)


def test_the_sanity_check_is_a_gap_of_its_own(tmp_path: Path) -> None:
    """Even where no callback but ours could say when it begins; it tags no step."""
    model = SelfValidated(Loader(2))
    model.in_validation = Pause(0.010)
    ran = planted(tmp_path, model, Loader(2), num_sanity_val_steps=2, check_val_every_n_epoch=2)
    assert len(model.in_validation.slept_ns) == 2
    assert ran.gap_places(Gap.SANITY_CHECK) == [-1]
    assert ran.gap_ns(Gap.SANITY_CHECK) == sum(model.in_validation.slept_ns)
    assert ran.gap_ns(Gap.VALIDATION) == 0
    assert ran.tagged(Tag.AFTER_VALIDATION) == []


def test_what_comes_between_the_sanity_check_and_the_first_step_is_startup(tmp_path: Path) -> None:
    """The sanity check's gap ends with it."""
    sleeper = Pause(0.200)
    ran = planted(
        tmp_path,
        SelfValidated(),
        Loader(2),
        At("on_train_epoch_start", sleeper),
        num_sanity_val_steps=1,
    )
    assert ran.gap_places(Gap.STARTUP) == [-1, -1]
    assert ran.gap_ns(Gap.STARTUP) == sum(sleeper.slept_ns)
    assert ran.gap_ns(Gap.SANITY_CHECK) == 0


@pytest.mark.parametrize(
    ("hook", "gap", "places"),
    [
        ("on_fit_start", Gap.STARTUP, [-1]),
        ("on_train_start", Gap.STARTUP, [-1]),
        ("on_train_epoch_end", Gap.EPOCH_BOUNDARY, [1, 3]),
        ("on_train_end", Gap.SHUTDOWN, [3]),
        ("on_fit_end", Gap.SHUTDOWN, [3]),
    ],
)
def test_what_hooks_around_training_take_is_a_gap(
    hook: str, gap: Gap, places: list[int], tmp_path: Path
) -> None:
    """Start, end, and the boundary between two epochs; steps know nothing of it."""
    sleeper = Pause(0.200)
    ran = planted(tmp_path, Model(), Loader(2), At(hook, sleeper), max_epochs=2)
    assert ran.gap_places(gap) == places
    assert ran.gap_ns(gap) == sum(sleeper.slept_ns) == ran.end.fit_ns
