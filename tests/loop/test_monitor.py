"""A plain loop, and where its time went by a clock that is not ours."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from support.loops import Loader, Sleeper, quiet, stepped, written

from trainperf.core.errors import ConfigError
from trainperf.core.phases import Tag
from trainperf.loop import LoopMonitor
from trainperf.loop.fit import PATIENCE
from trainperf.loop.monitor import NEVER_ENDED, NO_BATCHES
from trainperf.trials import Trial


IDLE = Trial("idle", print, print)


def test_the_start_of_the_loader_is_no_step(tmp_path: Path) -> None:
    """What happens before the first batch is asked for belongs to startup or the epoch's start."""
    sleeper = Sleeper()

    class Slow(Loader):
        def __iter__(self):  # noqa: ANN204
            sleeper.sleep("iter", 40)
            return iter([{"x": torch.ones(1)}] * self.number)

    with quiet(tmp_path) as monitor:
        sleeper.sleep("startup", 15)
        for _ in range(2):
            for _ in monitor.batches(Slow(sleeper, 3)):
                monitor.end_step()

    found = written(monitor)
    first, second = sleeper.naps["iter"]
    assert sum(found.gap_s("startup")) >= sleeper.total_s("startup") + first
    assert max(found.gap_s("epoch_boundary")) >= second
    assert sum(found.phase_s("data_wait")) < second / 2
    assert [bool(step.tags & Tag.FIRST_IN_EPOCH) for step in found.steps] == [
        True,
        False,
        False,
    ] * 2


# -- groups ------------------------------------------------------------------------------------


@pytest.mark.parametrize("epoch", [30, 64, 1000])
def test_where_end_step_is_never_called_a_batch_is_a_step(
    tmp_path: Path, epoch: int, caplog: pytest.LogCaptureFixture
) -> None:
    """After 64 batches, however they lie in epochs; said once, and in the report."""
    total, monitor = 240, quiet(tmp_path)
    done = 0
    while done < total:
        size = min(epoch, total - done)
        for _ in monitor.batches([torch.ones(2)] * size):
            pass
        done += size
    monitor.close()

    found = written(monitor)
    assert sum(step.micro_batches for step in found.steps) == total
    assert [step.micro_batches for step in found.steps][-100:] == [1] * 100
    assert len(found.steps) <= total - PATIENCE + PATIENCE // epoch + 1
    said = f"{NEVER_ENDED} in 64 batches, so every batch counts as a step"
    assert found.totals.notes["step"] == said
    assert [r.getMessage() for r in caplog.records] == [f"trainperf: {said}"]


def test_steps_without_a_batch_through_the_monitor_are_not_silent(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The loop iterates over its own loader: nothing can be measured, and it is told why."""
    with quiet(tmp_path) as monitor:
        for _ in range(3):
            monitor.end_step()

    assert [record.getMessage() for record in caplog.records] == [f"trainperf: {NO_BATCHES}"]
    assert monitor.run is None
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("group", [3, 100])
def test_a_group_is_believed_once_it_ends(tmp_path: Path, group: int) -> None:
    """Of a hundred micro-batches to a step the first group is mistaken, and no other."""
    with quiet(tmp_path) as monitor:
        for number, _ in enumerate(monitor.batches([torch.ones(2)] * max(4 * group, 120))):
            if number % group == group - 1:
                monitor.end_step()

    found = written(monitor)
    sizes = [step.micro_batches for step in found.steps]
    assert sizes[-3:] == [group] * 3
    assert group == 100 or set(sizes) == {group}
    assert "step" not in found.totals.notes


# -- ends --------------------------------------------------------------------------------------


def test_an_epoch_may_be_left_in_the_middle(tmp_path: Path) -> None:
    """What follows `break` is not the last step's."""
    sleeper = Sleeper()
    with quiet(tmp_path) as monitor:
        for number, _ in enumerate(monitor.batches(Loader(sleeper, 100))):
            monitor.end_step()
            if number == 4:
                break
        sleeper.sleep("after", 100)
        for _ in monitor.batches(Loader(sleeper, 3)):
            monitor.end_step()

    found = written(monitor)
    assert len(found.steps) == 8
    assert found.steps_s < sleeper.total_s("after") / 2
    assert max(found.gap_s("epoch_boundary")) >= sleeper.total_s("after")
    assert found.steps[5].tags & Tag.FIRST_IN_EPOCH


def test_a_batch_that_an_error_ended_is_none(tmp_path: Path) -> None:
    """Also where the loop holds on to its iterator, which nobody closes then."""
    monitor = quiet(tmp_path)
    batches = monitor.batches([torch.ones(2)] * 9)
    with pytest.raises(KeyError), monitor:  # noqa: PT012 the loop is the point
        for number, _ in enumerate(batches):
            if number == 4:
                raise KeyError
            monitor.end_step()
    batches.close()  # type: ignore[attr-defined]

    found = written(monitor)
    assert [step.facts["samples"] for step in found.steps] == [2] * 4
    assert not any(step.tags & Tag.PARTIAL_GROUP for step in found.steps)


def test_closing_twice_writes_once(tmp_path: Path) -> None:
    """And batches after the end are only passed on."""
    monitor = stepped(quiet(tmp_path), [torch.ones(1)] * 3)
    before = (monitor.run / "steps-rank0.jsonl").read_bytes()  # type: ignore[operator]
    monitor.close("again")

    assert list(monitor.batches([4, 5])) == [4, 5]
    assert (monitor.run / "steps-rank0.jsonl").read_bytes() == before  # type: ignore[operator]


class Unreadable(torch.nn.Linear):
    """Has parameters until it is looked at twice."""

    looks = 0

    def parameters(self, recurse: bool = True) -> Iterator[torch.nn.Parameter]:  # noqa: FBT001, FBT002 torch's own
        """Those of the layer, once."""
        self.looks += 1
        if self.looks > 1:
            raise RuntimeError("not now")
        return super().parameters(recurse)


def test_a_start_that_fails_leaves_no_empty_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Training goes on unmeasured, and beside the real runs there is no directory without one."""
    monitor = quiet(tmp_path).watch(Unreadable(2, 1))
    passed = [batch for _ in range(2) for batch in monitor.batches([4, 5])]
    with monitor.phase("forward"):
        monitor.end_step()
    monitor.close()

    assert passed == [4, 5, 4, 5]
    assert "not now" in str(monitor.monitor.guard.faults)
    assert len(caplog.records) == 1
    assert list(tmp_path.iterdir()) == []


def test_an_empty_loader_is_an_epoch_without_steps(tmp_path: Path) -> None:
    """The run says so; nothing is invented."""
    with quiet(tmp_path) as monitor:
        assert list(monitor.batches([])) == []

    found = written(monitor)
    assert found.steps == []
    assert found.end.steps == 0


# -- construction and wiring -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (lambda: LoopMonitor(log_every_n_steps=0), "log_every_n_steps=0.*at least 1; leave it out"),
        (lambda: LoopMonitor(tokens="labels"), "tokens='labels'.*lambda batch"),
        (lambda: quiet(None).phase("loop"), "'loop'.*forward.*validation"),
        (lambda: quiet(None, trials=["bf16"]), r"trials=\['bf16'\]: not a Trial; try Trial\("),
        (lambda: quiet(None, trials=[IDLE, IDLE]), "two are named 'idle'; give one another name"),
    ],
)
def test_what_makes_no_sense_is_refused_with_the_remedy(
    asked: Callable[[], object], words: str
) -> None:
    """Where the user chose it; also before the first epoch."""
    with pytest.raises(ConfigError, match=words):
        asked()


def test_watching_after_the_start_is_refused() -> None:
    """It would change nothing, silently."""
    monitor = quiet(None)
    for _ in monitor.batches([torch.ones(1)]):
        with pytest.raises(ConfigError, match="before batches"):
            monitor.watch(torch.nn.Linear(1, 1))
    monitor.close()


def test_without_a_directory_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The loop is measured all the same."""
    monkeypatch.chdir(tmp_path)
    monitor = stepped(LoopMonitor(None), [torch.ones(1)] * 5)

    assert list(tmp_path.iterdir()) == []
    assert monitor.monitor.progress["steps"] == 5


def test_a_directory_that_cannot_be_written_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Training goes on."""
    (tmp_path / "file").write_text("mine")
    monitor = stepped(quiet(tmp_path / "file"), [torch.ones(1)] * 5)

    assert monitor.run is None
    assert monitor.monitor.progress["steps"] == 5
    assert len(caplog.records) == 1
    assert "no run directory" in caplog.text


def test_the_header_says_what_was_trained(tmp_path: Path) -> None:
    """Model, optimizer and loader, for comparisons."""
    model = torch.nn.Linear(4, 2)
    data = torch.utils.data.TensorDataset(torch.ones(6, 4))
    loader = torch.utils.data.DataLoader(data, batch_size=3)
    monitor = quiet(tmp_path).watch(model, torch.optim.SGD(model.parameters(), 0.1))

    info = written(stepped(monitor, loader)).info
    told = {"loop": "plain", "model": "Linear", "parameters": 10, "optimizers": "SGD"}
    assert info.config.items() >= {**told, "batch_size": 3}.items()
    assert info.device == "cpu"
    assert info.reasons["h2d_bytes"].startswith("not applicable (CPU)")
    assert info.reasons["tail_ns"].startswith("not applicable")


def test_losses_are_kept(tmp_path: Path) -> None:
    """As a tensor, or as the number the loop has read already."""
    with quiet(tmp_path) as monitor:
        for number, _ in enumerate(monitor.batches([torch.ones(1)] * 6)):
            loss = torch.tensor(float(number))
            monitor.end_step(loss if number % 2 else loss.item())

    assert [step.facts["loss"] for step in written(monitor).steps] == [0, 1, 2, 3, 4, 5]


# -- under a scaler ----------------------------------------------------------------------------


def poison(model: torch.nn.Module) -> None:
    """An infinity in the gradients."""
    next(model.parameters()).grad.fill_(torch.inf)  # type: ignore[union-attr]


@pytest.mark.parametrize("fused", [False, True])
def test_overflows_are_counted_around_the_optimizer(tmp_path: Path, *, fused: bool) -> None:
    """With accumulation, and the phase around every batch although only the last one steps."""
    model = torch.nn.Linear(4, 2)
    optimizer = torch.optim.AdamW(model.parameters(), 0.1, fused=fused)
    scaler = torch.amp.GradScaler("cpu", init_scale=8.0)
    with quiet(tmp_path).watch(model, optimizer, scaler) as monitor:
        for number, batch in enumerate(monitor.batches(Loader(Sleeper(), 24))):
            scaler.scale(model(batch["x"]).sum()).backward()
            if number in {5, 11}:
                poison(model)
            with monitor.phase("optimizer"):
                if number % 3 == 2:
                    scaler.step(optimizer)
                    scaler.update()
                    optimizer.zero_grad()
            if number % 3 == 2:
                monitor.end_step()

    found = written(monitor)
    assert [step.facts["attempts"] for step in found.steps] == [1] * 8
    assert [step.facts["overflows"] for step in found.steps] == [0, 1, 0, 1, 0, 0, 0, 0]
    scales = [s.facts["loss_scale"] for s in found.steps if s.facts["loss_scale"] is not None]
    assert scales[-1] == scaler.get_scale() == 2.0


def test_several_optimizers_are_told_apart(tmp_path: Path) -> None:
    """Each in its own phase, with its name."""
    models = [torch.nn.Linear(4, 2), torch.nn.Linear(4, 2)]
    optimizers = [
        torch.optim.SGD(models[0].parameters(), 0.1),
        torch.optim.AdamW(models[1].parameters(), 0.1, fused=True),
    ]
    scaler = torch.amp.GradScaler("cpu")
    module = torch.nn.ModuleList(models)
    with quiet(tmp_path).watch(module, optimizers, scaler) as monitor:
        for number, batch in enumerate(monitor.batches(Loader(Sleeper(), 6))):
            for model, optimizer in zip(models, optimizers, strict=True):
                scaler.scale(model(batch["x"]).sum()).backward()
                if number == 1 or (number == 2 and model is models[1]):
                    poison(model)
                with monitor.phase("optimizer", optimizer):
                    scaler.step(optimizer)
            scaler.update()
            for optimizer in optimizers:
                optimizer.zero_grad()
            monitor.end_step()

    found = written(monitor)
    assert [step.facts["attempts"] for step in found.steps] == [2] * 6
    assert [step.facts["overflows"] for step in found.steps] == [0, 2, 1, 0, 0, 0]


def test_which_of_several_optimizers_must_be_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Else overflows are not measured, with the remedy; training goes on."""
    model = torch.nn.Linear(4, 2)
    optimizers = [torch.optim.SGD(model.parameters(), 0.1) for _ in range(2)]
    scaler = torch.amp.GradScaler("cpu")
    with quiet(tmp_path).watch(model, optimizers, scaler) as monitor:
        for _ in monitor.batches([torch.ones(1)] * 3):
            with monitor.phase("optimizer"):
                pass
            monitor.end_step()

    found = written(monitor)
    assert [step.facts["attempts"] for step in found.steps] == [None] * 3
    assert "phase('optimizer', optimizer)" in found.totals.reasons["overflows"]
    assert len(caplog.records) == 1
