"""Changes are tried under `trainperf try` in a Hugging Face training, and nothing of it is kept."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from support.fits import awake
from support.hugging_face import Rows, quiet, trainer
from support.trial_launch import launch_trials, trial_results
from transformers import TrainerCallback

from trainperf.core.artifacts.trials import TrialResult
from trainperf.core.launch_environment import TrialsOver
from trainperf.trials import Trial


class Noting(TrainerCallback):
    """A callback of the user's."""

    def on_step_end(self, *_: object, **__: object) -> None:
        """Does a little."""
        torch.ones(8).sum()


@pytest.fixture
def tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, TrialResult]]:
    """A training as `trainperf try` starts it; returns what came of these trials."""

    def training(
        *only: str, own: tuple[Trial, ...] = (), callbacks: Any = (), **options: Any
    ) -> dict[str, TrialResult]:
        launch_trials(monkeypatch, tmp_path / "tried", *only)
        callback = quiet(trials=own)
        started = trainer(tmp_path, callback, *callbacks, **options)
        with pytest.raises(TrialsOver):
            started.train()
        callback.training.fit.end()
        assert callback.training.fit.guard.faults == {}
        return trial_results(callback.run or tmp_path)

    return training


def test_trials_go_on_past_the_end_of_the_training_and_leave_nothing(
    tried: Callable[..., dict[str, TrialResult]], tmp_path: Path
) -> None:
    """Neither a checkpoint nor a log; two steps would not be enough for any."""
    results = tried(
        "no_callback_Noting",
        callbacks=[Noting()],
        rows=Rows(8),  # four steps an epoch: it has many
        evaluated=Rows(4),
        max_steps=2,
        save_strategy="steps",
        save_steps=1,
        eval_strategy="steps",
        eval_steps=1,
        report_to="tensorboard",
    )

    assert results["no_callback_Noting"].pairs
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == []
    assert [path.name for path in (tmp_path / "tried").iterdir()] == ["trainperf"]


@pytest.mark.parametrize("steps", [1, 3], ids=["one", "accumulated"])
def test_a_change_is_compared_on_the_same_batches_though_one_is_held_ahead(
    tried: Callable[..., dict[str, TrialResult]], steps: int
) -> None:
    """What changes nothing has the same loss to the last bit."""
    results = tried(
        "idle",
        own=(Trial("idle", awake, awake),),
        rows=Rows(90),
        gradient_accumulation_steps=steps,
        num_train_epochs=2,
        max_steps=-1,
    )

    assert results["idle"].loss_before is not None
    assert results["idle"].loss_before == results["idle"].loss_after
