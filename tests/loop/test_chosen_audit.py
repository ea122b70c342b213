"""`trainperf run` has a step of every loop audited: which one, and where none is."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from support.loops import Loader, Sleeper, Written, quiet, written
from torch import nn
from torch.utils.data import DataLoader

from trainperf.core.artifacts import read_document
from trainperf.core.artifacts.audit import StepAudit
from trainperf.core.launch_environment import VARIABLE, LaunchOptions, LaunchSignal, signals_in
from trainperf.core.phases import Tag
from trainperf.recording.probes import audit, audit_safety
from trainperf.recording.probes.audit_safety import why_not_eager
from trainperf.recording.probes.compilation import graphs_built


Commanded = Callable[..., None]


@pytest.fixture(autouse=True)
def command(monkeypatch: pytest.MonkeyPatch) -> Commanded:
    """Sets what the command was told; first, what it tells by default."""
    monkeypatch.setattr(audit_safety, "graphs_built", lambda: 0)  # other tests have built some

    def told(**options: object) -> None:
        monkeypatch.setenv(VARIABLE, json.dumps(options))

    told(audit=True)
    return told


class Trained:
    """A loop of epochs, each of so many steps, with the model as it is called."""

    def __init__(
        self, path: Path, model: nn.Module | None = None, audit_at: int | None = None
    ) -> None:
        torch.manual_seed(0)
        self.model = nn.Linear(4, 4) if model is None else model
        self.monitor = quiet(path, audit_at=audit_at)
        self.losses: list[float] = []

    def __call__(
        self, steps: int = 16, epochs: int = 1, rows: DataLoader[Any] | None = None
    ) -> "Trained":
        """Train, and close the run."""
        optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)
        with self.monitor.watch(self.model, optimizer) as monitor:
            for _ in range(epochs):
                for batch in monitor.batches(rows or Loader(Sleeper(), steps)):
                    loss = self.model(batch["x"]).square().sum()
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    self.losses.append(loss.item())
                    monitor.end_step(loss)
        return self

    @property
    def audit(self) -> StepAudit | None:
        """What it has left."""
        return read_document(StepAudit, self.monitor.run)

    @property
    def records(self) -> Written:
        """Of the run."""
        return written(self.monitor)

    @property
    def note(self) -> str:
        """What the report says about the audit."""
        return self.records.totals.notes["audit"]

    @property
    def traces(self) -> list[str]:
        """Captures, and what was read of them."""
        folder = self.monitor.run / "traces"
        return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


@pytest.mark.parametrize(
    ("steps", "epochs", "audited"),
    [(16, 1, 12), (13, 1, 12), (4, 5, 13), (1, 24, 20)],
    ids=["usual", "just long enough", "first in epoch", "always first in epoch"],
)
def test_an_ordinary_step_is_audited_once_the_warm_up_is_probably_over(
    steps: int, epochs: int, audited: int, tmp_path: Path
) -> None:
    """Not the first one of an epoch, unless there is no other."""
    trained = Trained(tmp_path)(steps, epochs)

    assert trained.audit.step == audited
    assert [step.index for step in trained.records.steps if step.tags & Tag.AUDITED] == [audited]
    assert trained.note.startswith(f"step {audited} was audited, which made it take ")


def test_a_step_amid_which_the_loop_validates_is_not_chosen(tmp_path: Path) -> None:
    """The next one is."""
    trained = Trained(tmp_path)
    layer = trained.model

    class Validates(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = layer

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if trained.monitor.monitor.recorder.index == 12:
                with trained.monitor.phase("validation"):
                    self.layer(x)
            return self.layer(x)

    trained.model = Validates()
    trained()

    assert trained.audit.step == 13


def test_a_shorter_training_says_that_none_was_audited(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """In the report; nobody has asked, so nobody is warned."""
    trained = Trained(tmp_path)(10)

    assert trained.audit is None
    assert trained.note == "no step was audited, the fit ended before step 12 was complete"
    assert "audited" not in caplog.text


def test_a_compiled_model_is_captured_and_not_run_uncompiled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same graphs and losses as without a look; the capture is read when the fit is over."""
    monkeypatch.undo()
    torch._dynamo.reset()
    layer = nn.Linear(4, 4)
    copied = copy.deepcopy(layer)
    before = graphs_built()
    plain = Trained(tmp_path / "plain", torch.compile(layer, backend="eager"))(20)
    built = graphs_built() - before
    monkeypatch.setenv(VARIABLE, '{"audit": true}')
    torch._dynamo.reset()
    looked = Trained(tmp_path / "looked", torch.compile(copied, backend="eager"))(20)

    assert looked.losses == plain.losses
    # As many again, or none that is new to torch.
    assert graphs_built() - before - built in (0, built)
    assert looked.audit is None
    assert looked.note.endswith("uncompiled; step 14 was captured instead")
    assert [name.split(".")[1] for name in looked.traces] == ["analysis", "trace"]
    assert [step.index for step in looked.records.steps if step.tags & Tag.PROFILED] == [13, 14, 15]
    assert looked.records.totals.faults == {}


def test_an_audit_of_too_many_operators_gives_way_to_a_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Operators are let pass once looking at them has taken what it may."""
    monkeypatch.setattr(audit, "MOST_S", 0.0)

    trained = Trained(tmp_path)(20)

    assert trained.audit is None
    assert trained.note.endswith("would take too long; step 14 was captured instead")
    assert trained.losses == Trained(tmp_path / "bare")(20).losses


def test_with_little_memory_nothing_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is said."""
    monkeypatch.setattr(audit_safety, "free_bytes", lambda: 100 << 20)

    trained = Trained(tmp_path)(20)

    assert (trained.audit, trained.traces) == (None, [])
    assert trained.note == "no step was audited: only 100 MiB of memory are free"


def test_a_profiler_of_the_scripts_own_is_left_alone(tmp_path: Path) -> None:
    """What it records would be the audit."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        trained = Trained(tmp_path)(24)

    assert (trained.audit, trained.traces) == (None, [])
    assert trained.note == "no step was audited: another torch profiler was at work"


def test_a_fault_of_the_audit_is_not_the_trainings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The training goes on as it would, and the report says what was switched off."""
    plain = Trained(tmp_path / "plain")().losses

    monkeypatch.setattr(
        "trainperf.audit.dispatch_mode.accesses_of", Mock(side_effect=RuntimeError("ours"))
    )
    trained = Trained(tmp_path / "broken")()

    assert trained.losses == plain
    assert trained.audit is None
    assert trained.records.totals.faults == {"audit": "RuntimeError: ours"}


class FSDPModule:
    """As torch calls the base that `fully_shard` gives a module."""


class Sharded(FSDPModule, nn.Linear):
    """A layer that looks like one that is spread over ranks."""


def compiled_in_place() -> nn.Module:
    """Its class is what it was."""
    layer = nn.Linear(2, 2)
    layer.compile(backend="eager")
    return layer


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (nn.Sequential(nn.Linear(2, 2)), ""),
        (nn.Sequential(torch.compile(nn.Linear(2, 2), backend="eager")), "torch.compile"),
        (nn.Sequential(Sharded(2, 2)), "FSDP2"),
        (nn.Sequential(compiled_in_place()), "torch.compile"),
        (None, ""),
    ],
    ids=["plain", "a compiled part", "sharded", "a part compiled in place", "unknown"],
)
def test_what_an_audit_might_hurt_is_known_by_its_parts(model: nn.Module | None, why: str) -> None:
    """Whether a graph was built yet or not."""
    assert why_not_eager(model).startswith(why)
    assert bool(why_not_eager(model)) == bool(why)


def test_options_of_the_command_reach_a_monitor_of_the_scripts_own(
    command: Commanded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They were ignored without a word."""
    monkeypatch.chdir(tmp_path)
    command(audit_at=3, dirpath=str(tmp_path / "out"))

    rows = [{"x": torch.ones(4)} for _ in range(12)]
    trained = Trained(Path("runs"))(rows=DataLoader(rows, batch_size=2))

    assert trained.monitor.run == tmp_path / "out" / "trainperf"
    assert trained.audit.step == 3


def test_what_the_script_chooses_is_kept_and_the_command_is_told(
    command: Commanded, tmp_path: Path
) -> None:
    """The step and the directory; what is the same is no choice of its own.

    It is told of the fit itself as well.
    """
    words = tmp_path / "words"
    words.mkdir()
    command(audit_at=3, dirpath=str(tmp_path / "out"), signals=str(words))
    LaunchOptions.of_this_process().joined(audit_at=3, dirpath=str(tmp_path / "out"))
    assert signals_in(words) == set()

    trained = Trained(tmp_path / "own", audit_at=5)
    trained(8)

    assert trained.monitor.run == tmp_path / "own" / "trainperf"
    assert trained.audit.step == 5
    assert signals_in(words) == {
        LaunchSignal.OWN_DIRECTORY,
        LaunchSignal.OWN_AUDIT,
        LaunchSignal.RECORDED,
    }
