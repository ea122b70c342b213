"""What we run in every step is timed where it stands, and told in the report."""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import cast

import pytest
import torch
from support.loops import read
from support.outside import hearing
from support.threads import one_thread
from torch import nn
from torch.nn.modules import module as nn_module

from trainperf.core.launch_environment import LaunchOptions
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.plugins import outside_loop
from trainperf.recording.recorder import Draft
from trainperf.recording.step_cost import STEPS, HookPrice, StepCost
from trainperf.recording.timeline import DirectBracket
from trainperf.testing import FakeClock


__all__ = ["one_thread"]

NAP_S = 0.002


def train(tmp_path: Path, steps: int) -> None:
    """A loop as its author wrote it, recorded from outside."""
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    with hearing(LaunchOptions(dirpath=str(tmp_path))):
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.ones(2, 4)).square().mean().backward()
            optimizer.step()


def test_what_hooks_cost_is_counted_as_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A nap that is planted in one of them comes back as overhead, once they were timed."""

    def slow_batch_of(args: tuple[object, ...], kwargs: object) -> object:
        del kwargs
        time.sleep(NAP_S)
        return args[0]

    monkeypatch.setattr(outside_loop, "batch_of", slow_batch_of)
    train(tmp_path, STEPS + 12)

    run = read(tmp_path / "trainperf" / "steps-rank0.jsonl")
    assert run.totals.faults == {}
    assert all((step.facts["overhead_ns"] or 0) >= 1e9 * NAP_S for step in run.steps[-8:])
    # Those that are timed no more are heard all the same.
    for phase in ("forward", "backward", "optimizer"):
        assert min(run.phase_s(phase)[-8:]) > 0
    assert not nn_module._global_forward_pre_hooks


@pytest.mark.parametrize("passes", [False, True], ids=["call", "passes"])
def test_the_price_of_hooks_is_not_taken_where_others_would_hear_of_it(*, passes: bool) -> None:
    """Hooks that are common to all modules hear of every call; nothing random is drawn."""
    price = HookPrice(monotonic_ns, passes=passes)
    calls: list[object] = []
    handle = nn_module.register_module_forward_hook(lambda *given: calls.append(given))
    try:
        for _ in range(4):
            price.look()
        assert price.ns == 0
    finally:
        handle.remove()
    assert not calls
    state = torch.get_rng_state()
    price.look()
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize("passes", [False, True], ids=["call", "passes"])
def test_the_price_of_hooks_is_what_a_call_takes_more_with_them(*, passes: bool) -> None:
    """By a clock that goes on by one for each reading, and by 1,000 while a module has a hook."""
    now = 0

    def clock() -> int:
        nonlocal now
        now += 1
        return now

    price = HookPrice(clock, passes=passes)

    def slow(x: torch.Tensor) -> torch.Tensor:
        nonlocal now
        now += 1000
        return x * 2

    price.hooked.forward = slow  # type: ignore[method-assign]
    for _ in range(6):
        price.look()

    assert 1000 <= price.ns < 1005


def timed(cost_us: Callable[[int], float], body_us: float = 50.0) -> list[float | None]:
    """What is known after each step of a loop with three brackets, of two switches each."""
    clock, step = FakeClock(), 0
    cost = StepCost(clock)

    def spend(*_: object) -> None:
        clock.advance(ms=cost_us(step) / 1e3)

    bracket = cost.bracket(cast("AbstractContextManager[None]", DirectBracket(spend, spend)))
    answers = []
    for step in range(STEPS + 1):
        for _ in range(3):
            with bracket:
                clock.advance(ms=body_us / 1e3)
        answers.append(cost.micro_batch_over(None, Draft(step, 0, 0, {}, switches=6)))
    return answers


def test_a_switch_costs_what_brackets_took_in_the_loop() -> None:
    """Whatever runs inside is the loop's; the first steps do not count, nor is it known there."""
    assert timed(lambda _: 2.0) == [*[None] * STEPS, 2000]
    assert timed(lambda step: 9.0 if step < STEPS // 2 else 2.0)[-1] == 2000
