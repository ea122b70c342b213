"""Each assertion passes on a healthy thing and fails on a planted fault, with what to do."""

import copy
import functools
import math
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from trainperf.core.errors import ConfigError
from trainperf.smoke import (
    SmokeFailure,
    assert_close_loss,
    assert_data_fraction_under,
    assert_no_graph_held,
    assert_no_recompile,
    assert_peak_memory_under,
)


BATCH = torch.linspace(-1, 1, 64).reshape(8, 8)
Step = Callable[[torch.Tensor], torch.Tensor]


def model_with(p: float) -> torch.nn.Sequential:
    """A model in train mode, the same weights each time."""
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.Dropout(p), torch.nn.Linear(8, 1))


def loss_of(model: torch.nn.Module) -> Step:
    """A step that computes a loss and trains nothing."""
    return lambda batch: model(batch).square().mean()


def failure(call: Callable[[], object]) -> SmokeFailure:
    """The failure of an assertion that must fail."""
    with pytest.raises(SmokeFailure) as failed:
        call()
    return failed.value


def test_equal_steps_with_dropout_have_equal_losses_and_the_random_state_stays() -> None:
    """Both draw the same masks; a test that compares losses does not change the ones after it."""
    model = model_with(0.5)
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)

    assert_close_loss(loss_of(model), loss_of(copy.deepcopy(model)), BATCH, rtol=0.0, atol=0.0)

    assert torch.equal(torch.rand(1), expected)


def drops(batch: torch.Tensor) -> torch.Tensor:
    """Functional dropout, which is in no module."""
    return torch.nn.functional.dropout(batch, 0.5).abs().sum()


def drops_twice(batch: torch.Tensor) -> torch.Tensor:
    """The same after other random numbers."""
    torch.nn.functional.dropout(batch, 0.5)
    return drops(batch)


@pytest.mark.parametrize(
    ("step_a", "step_b", "saw", "do"),
    [
        # The numbers, their distance and what was allowed.
        (
            lambda b: 2.0,
            lambda b: 2.1,
            "step_a gives loss 2, step_b 2.1: they differ by 0.1, more than atol=1e-06",
            "same weights",
        ),
        # Another probability draws as often.
        (
            loss_of(model_with(0.1)),
            loss_of(model_with(0.5)),
            "drew the same random numbers",
            "the same p of dropout",
        ),
        # Train against eval does not.
        (
            loss_of(model_with(0.5)),
            loss_of(model_with(0.5).eval()),
            "drew different random numbers",
            "another mode",
        ),
        # Dropout in another order is recognised by its random numbers.
        (drops, drops_twice, "drew different random numbers", "kernel of random draws"),
        # NaN is no loss, even twice.
        (lambda b: math.nan, lambda b: math.nan, "must be finite", "set_detect_anomaly"),
    ],
)
def test_losses_that_differ_are_told_with_what_may_be_the_reason(
    step_a: Step, step_b: Step, saw: str, do: str
) -> None:
    """And with what to do."""
    failed = failure(lambda: assert_close_loss(step_a, step_b, BATCH))

    assert saw in failed.saw
    assert do in failed.do


def test_a_loss_within_the_tolerance_passes() -> None:
    """The edge is inside."""
    assert_close_loss(lambda b: 2.0, lambda b: 2.5, None, rtol=0.25, atol=0.0)


def test_a_step_that_trains_is_recognised() -> None:
    """Its second call starts from other weights: that, not dropout, is the reason."""
    model = model_with(0.0)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)

    def step(batch: torch.Tensor) -> torch.Tensor:
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    failed = failure(lambda: assert_close_loss(step, step, BATCH))

    assert "A second call of step_a" in failed.saw
    assert "copy.deepcopy" in failed.do


@dataclass
class Metrics:
    """What a careless loop keeps."""

    history: list[object]


class Slotted:
    """Has no `__dict__`."""

    __slots__ = ("last",)

    def __init__(self, last: object) -> None:
        self.last = last


def with_graph() -> torch.Tensor:
    """A loss with its graph."""
    return (torch.ones(2, requires_grad=True) * 2).sum()


def closing_over(held: object) -> Callable[[], object]:
    """A function that keeps *held*."""
    return lambda: held


HOLDERS = {
    "a list in an attribute": (lambda t: Metrics([1.0, t]), "obj.history[1]"),
    "a mapping": (lambda t: {"train": {"loss": t}}, "obj['train']['loss']"),
    "a deque": (lambda t: deque([t]), "obj[0]"),
    "a slot": (Slotted, "obj.last"),
    "a closure": (closing_over, "obj.<closure>.held"),
    "a partial": (lambda t: functools.partial(print, t), "obj.args[0]"),
    "the tensor": (lambda t: t, "obj"),
    "a graph node": (lambda t: [t.grad_fn], "obj[0]"),
}


@pytest.mark.parametrize("name", HOLDERS)
def test_a_held_graph_is_found_and_its_path_named(name: str) -> None:
    """Wherever Python can hold it; and the same without a graph passes."""
    hold, path = HOLDERS[name]

    failed = failure(lambda: assert_no_graph_held(hold(with_graph())))

    assert f"  {path}: " in failed.saw
    assert "SumBackward0" in failed.saw
    assert ".detach()" in failed.do
    assert_no_graph_held(hold(torch.ones(2)) if name != "a graph node" else [None])


def test_a_model_holds_a_graph_after_a_step_only_in_a_gradient_that_has_one() -> None:
    """Parameters need gradients but are leaves; `create_graph=True` keeps one in `.grad`."""
    model = model_with(0.1)
    optimizer = torch.optim.AdamW(model.parameters())
    loss_of(model)(BATCH).backward()
    optimizer.step()

    assert_no_graph_held([model, optimizer])
    model[0].weight.grad = model[0].weight * 2
    failed = failure(lambda: assert_no_graph_held(model, name="model"))
    assert "model.0.weight.grad: " in failed.saw


def test_many_held_graphs_are_counted() -> None:
    """The first few are shown, the last and the number told."""
    failed = failure(lambda: assert_no_graph_held([with_graph() for _ in range(1000)]))

    assert failed.saw.startswith("1,000 objects in obj keep")
    assert "995 more, the last at obj[999]" in failed.saw


def test_what_refers_to_itself_ends() -> None:
    """Cycles and long chains are walked once."""
    chain: list[object] = []
    for _ in range(10_000):
        chain = [chain]
    loop: dict[str, object] = {"chain": chain}
    loop["self"] = loop

    assert_no_graph_held(loop)


def test_a_path_that_may_hold_a_graph_may() -> None:
    """Only that one."""
    held = [with_graph(), with_graph()]

    assert "1 object" in failure(lambda: assert_no_graph_held(held, allowed=["obj[0]"])).saw
    assert_no_graph_held(held, allowed=["obj[0]", "obj[1]"])


class Timed:
    """A loader and a step that take as long on a clock as they are told to."""

    def __init__(self, data_s: float, step_s: float, workers: int | None = None) -> None:
        self.now_s = 0.0
        self.data_s = data_s
        self.step_s = step_s
        if workers is not None:
            self.num_workers = workers

    def __iter__(self) -> Iterator[int]:
        for batch in range(10):
            # The first one also starts the workers.
            self.now_s += self.data_s if batch else 100.0
            yield batch

    def step(self, batch: int) -> None:
        """One step."""
        self.now_s += self.step_s

    def clock(self) -> float:
        """The time, in seconds."""
        return self.now_s


def test_the_data_fraction_is_a_quotient_of_sums_without_the_warm_up() -> None:
    """1 s of data and 7 s of step are 12.5 %, whatever the first batch took."""
    timed = Timed(1.0, 7.0)

    found = assert_data_fraction_under(timed, timed.step, 0.2, warmup=1, clock=timed.clock)

    assert (found.data_s, found.step_s, found.steps) == (9.0, 63.0, 9)
    assert found.fraction == 0.125


def test_a_loader_that_is_too_slow_says_how_many_workers_hide_it() -> None:
    """12 s of data behind 8 s of step need two workers."""
    timed = Timed(12.0, 8.0, workers=0)

    failed = failure(
        lambda: assert_data_fraction_under(timed, timed.step, 0.2, steps=5, clock=timed.clock)
    )

    assert failed.saw == (
        "data wait is 60 % of the loop, not below 20 %: 12.0 s in the loader and 8.00 s in "
        "the step, mean of 5 steps."
    )
    assert "num_workers=2" in failed.do


@pytest.mark.parametrize(("workers", "said"), [(4, "num_workers=4 cannot keep up"), (None, "Data")])
def test_the_advice_fits_the_loader(workers: int | None, said: str) -> None:
    """More workers for one that has some, workers for one that has none."""
    timed = Timed(1.0, 1.0, workers)

    assert (
        said
        in failure(lambda: assert_data_fraction_under(timed, timed.step, 0.5, clock=timed.clock)).do
    )


def hungry(batch: int) -> float:
    """Holds *batch* bytes long enough to be seen."""
    held = torch.ones(batch // 4)
    for _ in range(20):
        held.mul_(1.0)
    return held[0].item()


def test_a_step_within_its_memory_passes_and_one_beyond_fails() -> None:
    """128 MiB are less than 512 and more than 64."""
    taken = 128 << 20

    memory = assert_peak_memory_under(hungry, taken, 512 << 20, above_start=True)
    failed = failure(lambda: assert_peak_memory_under(hungry, taken, 64 << 20, above_start=True))

    assert memory.above_start_bytes > 0.9 * taken
    assert "above what was held before, not below 64.0 MiB" in failed.saw
    assert "smaller micro-batch" in failed.do
    # The whole process counts unless said otherwise: torch takes more than a MiB.
    assert "at the peak" in failure(lambda: assert_peak_memory_under(hungry, 32 << 20, 1 << 20)).saw


def times_two(batch: torch.Tensor) -> torch.Tensor:
    """Compiled by the tests."""
    return batch * 2


def batches(*sizes: int) -> list[torch.Tensor]:
    """One batch of each size."""
    return [torch.ones(size, 2) for size in sizes]


@pytest.mark.usefixtures("fresh_compiler")
def test_one_shape_is_compiled_once_and_the_first_change_may_be_left_out() -> None:
    """Torch makes the dimension dynamic there; afterwards every size passes."""
    step = torch.compile(times_two, backend="eager")

    assert_no_recompile(step, batches(4, 4, 4, 4))
    assert_no_recompile(step, batches(4, 4))
    assert_no_recompile(step, batches(4, 5, 6, 7), warmup=2)


@pytest.mark.usefixtures("fresh_compiler")
@pytest.mark.parametrize(
    ("step", "sizes", "said"),
    [
        # The batch, the function and the reason are named.
        (
            {"dynamic": False},
            (4, 4, 3),
            (
                "on 1 of 3 batches, after the warm-up (batch 2, counted from 0)",
                "times_two",
                "expected 4, actual 3",
            ),
        ),
        # The warm-up is as long as it says and no longer.
        ({"dynamic": False}, (4, 3), ("(batch 1, ",)),
        # An assertion that cannot fail would say nothing.
        ({"disable": True}, (4, 4), ("no graph",)),
    ],
    ids=["a short last batch", "right after the warm-up", "never compiled"],
)
def test_a_recompilation_is_told_with_its_reason(
    step: dict[str, Any], sizes: tuple[int, ...], said: tuple[str, ...]
) -> None:
    """And with the remedy."""
    compiled = torch.compile(times_two, backend="eager", **step)

    failed = failure(lambda: assert_no_recompile(compiled, batches(*sizes)))

    assert all(words in failed.saw for words in said)
    assert "drop_last=True" in failed.do or "compile the model" in failed.do


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: assert_close_loss(lambda b: 1.0, lambda b: None, None),
            "step_b: returned no single loss",
        ),
        (
            lambda: assert_data_fraction_under(Timed(1.0, 1.0), print, 0.2, warmup=10),
            "warmup=10",
        ),
        (lambda: assert_data_fraction_under([1], print, 20), "limit=20"),
        (lambda: assert_no_recompile(times_two, batches(4, 4), warmup=2), "warmup=2"),
    ],
)
def test_what_measures_nothing_is_refused(call: Callable[[], object], says: str) -> None:
    """With the value: nothing measured is no pass, and 20 is not 20 %."""
    with pytest.raises(ConfigError, match=says):
        call()
