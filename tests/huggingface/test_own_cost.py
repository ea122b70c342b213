"""What measuring a Hugging Face training costs is told in its report."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.hugging_face import Rows, Tiny, quiet, trainer
from support.loops import read
from support.threads import one_thread

from trainperf.huggingface import session
from trainperf.huggingface.passes import Passes
from trainperf.recording.recorder import Recorder
from trainperf.recording.step_cost import STEPS, HookPrice


__all__ = ["one_thread"]

NAP_S = 0.002


def napping(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, after a nap."""

    def call(*given: Any, **named: Any) -> Any:
        time.sleep(NAP_S)
        return function(*given, **named)

    return call


def dear(price: HookPrice) -> None:
    """Hooks cost as much as a nap."""
    price.ns = round(1e9 * NAP_S)


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (Recorder, "boundary"),
        (Passes, "_forward_begins"),
        (Passes, "_backward_begins"),
        (session.MeasuredTraining, "_micro_batch"),
        (HookPrice, "look"),
    ],
    ids=["loader", "forward", "backward", "step", "torch"],
)
def test_what_runs_every_step_is_counted_as_ours(
    owner: type, name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A nap in it comes back as overhead, once it was timed; one in backward itself does not."""
    monkeypatch.setattr(owner, name, napping(getattr(owner, name)) if name != "look" else dear)
    callback = quiet()
    model = Tiny()
    model.layer.weight.register_hook(lambda _: time.sleep(5 * NAP_S))
    training = trainer(tmp_path, callback, model=model, rows=Rows(200), max_steps=STEPS + 12)
    training.train()

    run = read(callback.run / "steps-rank0.jsonl")
    assert run.totals.faults == {}
    own = [step.facts["overhead_ns"] or 0 for step in run.steps[-8:]]
    assert min(own) >= 1e9 * NAP_S
    assert sorted(own)[4] < sorted([1e9 * seconds for seconds in run.phase_s("backward")[-8:]])[4]
    assert "backward" not in vars(training.accelerator)
    for phase in ("data_wait", "forward", "backward", "optimizer", "callbacks"):
        assert min(run.phase_s(phase)[-8:-1]) > 0, phase
