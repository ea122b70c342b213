"""What a plain loop's identity says that only seeing it run can tell."""

from pathlib import Path

import pytest
import torch
from support.loops import quiet, stepped, written

from trainperf.analysis.run.directory import Run
from trainperf.analysis.summarize import summarize
from trainperf.loop import LoopMonitor


def trained(
    path: Path, model: torch.nn.Module, *, autocast: bool = False, micro_batches: int = 1
) -> LoopMonitor:
    """Six batches of a loop, stepped once per group."""
    with quiet(path).watch(model) as monitor:
        for number, batch in enumerate(monitor.batches([torch.ones(2, 4)] * 6), start=1):
            with monitor.phase("forward"), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                model(batch)
            if number % micro_batches == 0:
                monitor.end_step()
    return monitor


def config(monitor: LoopMonitor) -> dict[str, object]:
    """The configuration as comparisons and reports see it."""
    return dict(summarize(Run.open(monitor.run)).run.config)


@pytest.mark.parametrize("said", ["bfloat16", "off"])
def test_autocast_around_the_model_is_seen(tmp_path: Path, said: str) -> None:
    """In its first forward; the parameters' type stands beside it."""
    found = config(trained(tmp_path, torch.nn.Linear(4, 4), autocast=said != "off"))

    assert found["autocast"] == said
    assert found["precision"] == "float32"


def test_the_precision_is_what_most_parameters_are_of(tmp_path: Path) -> None:
    """Most elements first."""
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.LayerNorm(4))
    model[0].to(torch.float64)
    monitor = stepped(quiet(tmp_path).watch(model), [1])

    assert written(monitor).info.config["precision"] == "float64, float32"


def test_a_forward_that_never_ran_says_nothing_of_autocast(tmp_path: Path) -> None:
    """The module may be called through a method of its own; then it is not known."""
    model = torch.nn.Linear(4, 4)
    monitor = stepped(quiet(tmp_path).watch(model), [torch.ones(2, 4)], model.forward)

    assert "autocast" not in config(monitor)


def test_no_hook_is_left_on_the_model(tmp_path: Path) -> None:
    """Neither after its first forward nor after a fit without one."""
    called, idle = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)
    with quiet(tmp_path).watch(called) as monitor:
        for _ in monitor.batches([torch.ones(2, 4)] * 2):
            assert bool(called._forward_pre_hooks)
            called(torch.ones(2, 4))
            assert not called._forward_pre_hooks
            break
    stepped(quiet(tmp_path).watch(idle), [1])

    assert not idle._forward_pre_hooks


def test_a_compiled_model_gets_no_hook(tmp_path: Path) -> None:
    """It would be compiled anew."""
    model = torch.compile(torch.nn.Linear(4, 4), backend="eager")
    hooks: list[object] = []
    monitor = stepped(
        quiet(tmp_path).watch(model), [1], lambda _: hooks.extend(model._forward_pre_hooks)
    )

    assert not hooks
    assert "autocast" not in config(monitor)


@pytest.mark.parametrize("micro_batches", [1, 3, 4])
def test_accumulation_is_counted(tmp_path: Path, micro_batches: int) -> None:
    """Micro-batches of a step, as in Lightning; a group that the epoch cut short does not count."""
    monitor = trained(tmp_path, torch.nn.Linear(4, 4), micro_batches=micro_batches)

    assert config(monitor)["accumulate_grad_batches"] == micro_batches


def test_accumulation_that_changes_is_a_range(tmp_path: Path) -> None:
    """One number would be wrong for some steps."""
    with quiet(tmp_path) as monitor:
        for number in monitor.batches(range(6)):
            if number in (0, 2, 5):
                monitor.end_step()

    found = config(monitor)
    assert found["accumulate_grad_batches"] == "1 to 3"
    # Of a model that nobody named nothing is known: that is not float32.
    assert not {"precision", "autocast"} & found.keys()


@pytest.mark.parametrize(
    ("batch", "length"),
    [
        ({"attention_mask": torch.ones(2, 7), "input_ids": torch.ones(2, 9)}, 7),
        ({"labels": torch.ones(2, 8)}, 8),
        ({"input_ids": torch.ones(2, 9)}, 9),
        ({"input_ids": torch.ones(9)}, None),
        ({"x": torch.ones(2, 9)}, None),
        (torch.ones(2, 9), None),
    ],
)
def test_the_sequence_length_is_the_first_batchs(
    tmp_path: Path, batch: object, length: int | None
) -> None:
    """Padding included; from whatever tells the tokens, else from `input_ids`."""
    longer = {"attention_mask": torch.ones(2, 99), "input_ids": torch.ones(2, 99)}
    monitor = stepped(quiet(tmp_path), [batch] if length is None else [batch, longer])

    assert config(monitor).get("sequence_length") == length
