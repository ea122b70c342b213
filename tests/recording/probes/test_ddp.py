"""The all-reduce tail of a real DDP module, on a clock that only the all-reduce moves."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext

import pytest
import torch
import torch.distributed as dist
from support.live import MS, DeviceFit, HostFit
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

from trainperf.recording.probes.ddp import NO_BACKWARD, TailProbe
from trainperf.recording.probes.device_marks import Mark
from trainperf.recording.probes.selection import EVERYTHING, FitObjects, choose
from trainperf.testing import FakeClock


QUEUE = torch.autograd.Variable._execution_engine.queue_callback
"""Calls something when the graph is computed and before DDP waits, if DDP has not asked yet."""


pytestmark = pytest.mark.usefixtures("one_rank")


def reduced(bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """What a communication hook returns."""
    done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    done.set_result(bucket.buffer())
    return done


class Branches(torch.nn.Module):
    """Layers one after the other; which of them come first can be changed, or be left out."""

    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(layers)])
        self.order = list(range(layers))
        self.before_gradients_of_first: Callable[[], None] = lambda: None
        self.reentrant: bool | None = None
        """How each layer but the last is checkpointed; `None` for none."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Through the layers that are used."""
        for number in self.order[:-1]:
            if self.reentrant is None:
                x = self.layers[number](x)
            else:
                x = checkpoint(self.layers[number], x, use_reentrant=self.reentrant)
            if number == self.order[0] and x.requires_grad:
                x.register_hook(lambda _: self.before_gradients_of_first())
        return self.layers[self.order[-1]](x).sum()


class Training:
    """A DDP module whose all-reduce takes as long as it is told, a bucket.

    While other gradients are computed; what the last bucket takes DDP waits for.
    """

    def __init__(
        self, *, reduce_ms: float = 5.0, layers: int = 4, find_unused_parameters: bool = True
    ) -> None:
        self.fit: HostFit | DeviceFit
        self.model = Branches(layers)
        self.module = DistributedDataParallel(
            self.model,
            bucket_cap_mb=0.0001,  # a bucket a layer
            find_unused_parameters=find_unused_parameters,
        )
        self.reduce_ms = reduce_ms
        self.reduced = 0
        self.on_device = False
        self.module.register_comm_hook(None, self._reduce)

    def _reduce(self, state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        self.reduced += 1
        if bucket.is_last():
            QUEUE(self._takes)
        else:
            self._takes()
        return reduced(bucket)

    def _takes(self) -> None:
        if self.on_device and isinstance(self.fit, DeviceFit):
            self.fit.device.work(self.reduce_ms)
        else:
            self.fit.clock.advance(ms=self.reduce_ms)

    def on_host(self) -> TailProbe:
        """Measure with the host's clock."""
        self.probe = TailProbe([self.module])
        self.fit = HostFit(self.probe)
        return self.probe

    def ends(self) -> None:
        """Backward has returned."""
        self.probe.ending(self.fit.monitor.guard)()

    @contextmanager
    def batch(self, *, complete: bool = True, user_hook_ms: float = 0.0) -> Iterator[None]:
        """A micro-batch, whose backward ends last."""
        self.fit.monitor.recorder.boundary()
        yield
        self.ends()
        self.fit.clock.advance(ms=user_hook_ms)
        self.fit.monitor.micro_batch(None, None, complete=complete)

    def step(
        self, *, micro_batches: int = 1, user_hook_ms: float = 0.0, no_sync: str = "passes"
    ) -> None:
        """Micro-batches, of which only the last one synchronises under `no_sync()`.

        That is around whole passes, around each `backward` alone, or nowhere.
        """
        held = {no_sync: self.module.no_sync}
        for number in range(micro_batches):
            last = number == micro_batches - 1
            with (
                self.batch(complete=last, user_hook_ms=user_hook_ms),
                nullcontext() if last else held.get("passes", nullcontext)(),
            ):
                loss = self.module(torch.ones(2, 8, requires_grad=self.model.reentrant is True))
                with held.get("backward", nullcontext)():
                    loss.backward()

    def tails_ms(self, *steps: int, orders: Sequence[Sequence[int]] = ()) -> list[float | None]:
        """Tails of so many steps in each of the orders, by default in the one that is set."""
        for number, order in zip(steps, orders or [self.model.order] * len(steps), strict=True):
            self.model.order = list(order)
            for _ in range(number):
                self.step()
        self.fit.monitor.finish("finished")
        assert self.fit.monitor.guard.faults == {}
        tails = self.fit.facts("tail_ns")
        return [None if tail is None else tail / MS for tail in tails]


@pytest.mark.parametrize(
    ("reduce_ms", "step", "reductions"),
    [
        pytest.param(5, {}, 1, id="three of four buckets are reduced while others are computed"),
        pytest.param(0, {}, 1, id="nothing to reduce is zero, a measurement"),
        pytest.param(5, {"user_hook_ms": 100}, 1, id="what the user does afterwards is not in it"),
        pytest.param(5, {"micro_batches": 3}, 1, id="under no_sync nothing is reduced"),
        pytest.param(5, {"micro_batches": 3, "no_sync": "nowhere"}, 3, id="each reduces"),
        # What forward has prepared happens.
        pytest.param(5, {"no_sync": "backward"}, 1, id="around backward alone nothing is held"),
    ],
)
def test_the_tail_is_what_follows_the_last_gradient(
    reduce_ms: float, step: dict[str, int], reductions: int
) -> None:
    """In every step, until backward has returned; reductions are counted."""
    training = Training(reduce_ms=reduce_ms)
    probe = training.on_host()
    for _ in range(5):
        training.step(**step)

    assert training.tails_ms() == [reductions * reduce_ms] * 5
    assert training.reduced >= 4 * 5
    assert probe.config()["allreduces_per_step"] == reductions
    assert probe.config()["micro_batches_per_step"] == step.get("micro_batches", 1)


def test_ddp_tells_its_buckets_and_what_it_found_unused() -> None:
    """As many as are reduced in a step; of four layers of 72 parameters the last takes no part."""
    training = Training()
    probe = training.on_host()
    training.model.order = [0, 1, 2]
    for _ in range(4):
        training.step()
    training.fit.monitor.finish("finished")

    found = probe.config()
    assert found["ddp_buckets"] == training.reduced / 4
    # Torch 2.6 adds them up over the steps that it looked at.
    assert found["ddp_unused_bytes"] in {72 * 4 * steps for steps in range(1, 5)}


def slow_first_layer(**options: bool) -> Training:
    """The gradients of what comes first take 7 ms to compute, after all others."""
    training = Training(**options)
    training.on_host()
    training.model.before_gradients_of_first = lambda: training.fit.clock.advance(ms=7)
    return training


DRAW = random.Random(7)  # noqa: S311 a test


@pytest.mark.parametrize(
    "orders",
    [
        pytest.param([[*sorted(DRAW.sample(range(3), 2)), 3] for _ in range(60)], id="at random"),
        pytest.param([[0, 1, 2, 3], [1, 2, 3], [0, 1, 2, 3]], id="a layer left out for a while"),
        pytest.param([[1, 2, 3], [0, 1, 2, 3]], id="an earlier layer joins in"),
        pytest.param([[branch % 2, 2, 3] for branch in range(20)], id="branches in turns"),
        pytest.param([[0, 1], [2, 3]] * 5, id="halves in turns"),
        pytest.param([[3, 2, 1, 0], [1, 0, 2, 3]], id="another order"),
    ],
)
def test_whichever_gradient_is_last_every_step_has_its_tail(orders: list[list[int]]) -> None:
    """Nothing that is computed is in it, and nothing is learnt first."""
    training = slow_first_layer()

    assert training.tails_ms(*[3] * len(orders), orders=orders) == [5] * (3 * len(orders))


def test_a_backward_that_no_hook_tells_of_has_no_tail() -> None:
    """Neither the first layer nor the last takes part: a part of the step's tail would be none."""
    training = Training()
    probe = training.on_host()
    for orders in ([[1, 2], [0, 1, 2, 3]], [[0, 1, 2, 3], [1, 2]], [[0, 1], [2, 3]]):
        for micro_batch, order in enumerate(orders):
            training.model.order = order
            with training.batch(complete=micro_batch == 1):
                training.module(torch.ones(2, 8)).backward()

    assert training.tails_ms() == [None, None, 10]
    assert probe.config()["allreduces_per_step"] == 2


def test_a_layer_that_is_frozen_and_thawed_leaves_no_wrong_tail_behind() -> None:
    """Frozen, its hook is silent; thawed, its gradient comes after that of another."""
    training = slow_first_layer()
    for frozen in (False, True, False):
        training.model.layers[0].requires_grad_(not frozen)
        for _ in range(4):
            training.step()

    assert training.tails_ms() == [5] * 12


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointed_layers_are_computed_again_before_the_tail(*, reentrant: bool) -> None:
    """A reentrant checkpoint is a graph of its own inside the other, after which DDP waits."""
    training = slow_first_layer(find_unused_parameters=False)
    training.model.reentrant = reentrant

    assert training.tails_ms(4) == [5] * 4


def test_gradients_that_ddp_does_not_reduce_are_no_part_of_the_tail() -> None:
    """Of an input, which takes 3 ms after the last gradient of the module."""
    training = Training()
    training.on_host()
    for _ in range(3):
        with training.batch():
            batch = torch.ones(2, 8, requires_grad=True)
            batch.register_hook(lambda _: training.fit.clock.advance(ms=3))
            training.module(batch).backward()

    assert training.tails_ms() == [5] * 3


def test_a_backward_that_nobody_announced_is_no_part_of_the_next() -> None:
    """Its moment is forgotten when the next one begins, also under `no_sync`."""
    training = Training()
    training.on_host()
    for _ in range(3):
        with training.batch():
            training.module(torch.ones(2, 8)).backward()
            training.fit.clock.advance(ms=100)
            with training.module.no_sync():
                training.module(torch.ones(2, 8)).backward()
            training.ends()
            training.module(torch.ones(2, 8)).backward()

    assert training.tails_ms() == [5] * 3


class Adversaries:
    """Two DDP modules that train in turns, as the two of a GAN; a bucket takes 5 ms."""

    def __init__(self) -> None:
        self.modules = [
            DistributedDataParallel(torch.nn.Linear(8, 8), bucket_cap_mb=0.0001) for _ in range(2)
        ]
        self.probe = TailProbe(self.modules)
        self.fit = HostFit(self.probe)
        self.hides = False
        """Whether the second one's reduction is over before all is computed."""
        for number, module in enumerate(self.modules):
            module.register_comm_hook(number, self._reduce)

    def _reduce(
        self, number: object, bucket: dist.GradBucket
    ) -> torch.futures.Future[torch.Tensor]:
        if self.hides and number == 1:
            self.fit.clock.advance(ms=5)
        else:
            QUEUE(lambda: self.fit.clock.advance(ms=5))
        return reduced(bucket)

    def backward(self, loss: torch.Tensor) -> None:
        """One backward, as a loop brackets it."""
        loss.backward()
        self.probe.ending(self.fit.monitor.guard)()

    def steps(self, number: int) -> None:
        """Discriminator alone, then the generator through it: two backwards a step."""
        generator, discriminator = self.modules
        for _ in range(number):
            self.fit.monitor.recorder.boundary()
            made = generator(torch.ones(2, 8))
            self.backward(discriminator(made.detach()).sum())
            discriminator.requires_grad_(False)
            self.backward(discriminator(made).sum())
            discriminator.requires_grad_(True)
            self.fit.monitor.micro_batch(None, None, complete=True)
        self.fit.monitor.finish("finished")


def test_two_modules_that_train_in_turns_have_a_tail_each() -> None:
    """A module that a backward does not reach reduces nothing in it."""
    training = Adversaries()
    training.steps(10)

    assert training.fit.facts("tail_ns") == [10 * MS] * 10
    assert training.probe.config()["allreduces_per_step"] == 2


@pytest.mark.parametrize(("hides", "tail_ms"), [(False, 10), (True, 5)])
def test_one_backward_through_two_modules_has_one_tail(*, hides: bool, tail_ms: int) -> None:
    """From the last gradient of both: a reduction that the other's computing hides counts not."""
    training = Adversaries()
    training.hides = hides
    for _ in range(6):
        training.fit.monitor.recorder.boundary()
        first, second = training.modules
        training.backward(second(first(torch.ones(2, 8))).sum())
        training.fit.monitor.micro_batch(None, None, complete=True)
    training.fit.monitor.finish("finished")

    assert training.fit.facts("tail_ns") == [tail_ms * MS] * 6
    assert training.probe.config()["allreduces_per_step"] == 1
    assert training.probe.config()["ddp_buckets"] == 2


def test_a_loop_that_announces_no_backward_has_a_reason() -> None:
    """Not a tail of zero, and not one without a word."""
    training = Training()
    training.on_host()
    training.fit.steps(3).finish()

    assert training.probe.reasons() == {"tail_ns": NO_BACKWARD}
    assert training.probe.config() == {}


def test_a_backward_that_reduces_nothing_is_announced_all_the_same() -> None:
    """There is no tail, and another reason for it."""
    training = Training(find_unused_parameters=False)
    probe = training.on_host()
    with training.batch():
        pass

    assert training.tails_ms() == [None]
    assert probe.reasons() == {}
    assert probe.config()["allreduces_per_step"] == 0


@pytest.mark.parametrize(("leaves_out", "hooks"), [(False, 1), (True, 2)])
def test_hardly_any_parameter_has_a_hook_and_none_at_the_end(
    *, leaves_out: bool, hooks: int
) -> None:
    """Torch calls each in every backward; the module outlives the fit, and the user's own stay."""
    training = Training(find_unused_parameters=leaves_out)
    parameters = list(training.module.parameters())
    heard: list[int] = []
    for parameter in parameters:
        parameter.register_post_accumulate_grad_hook(lambda _: heard.append(1))
    training.on_host()
    during = [len(p._post_accumulate_grad_hooks or ()) for p in parameters]
    assert training.tails_ms(2) == [5, 5]

    assert sum(during) == len(parameters) + hooks
    assert [len(p._post_accumulate_grad_hooks or ()) for p in parameters] == [1] * len(parameters)
    assert len(heard) == 2 * len(parameters)


def test_on_a_device_the_tail_is_the_devices_time() -> None:
    """What DDP made the compute stream wait for, between the two marks."""
    training = Training()
    training.probe = TailProbe([training.module], lambda: fit.marks.mark(Mark.LAST_GRADIENT))
    fit = training.fit = DeviceFit(probes=[training.probe])
    training.on_device = True
    for _ in range(5):
        fit.fetch()
        training.module(torch.ones(2, 8)).backward()
        fit.marks.mark(Mark.BACKWARD_ENDS)
        training.ends()
        fit.end_step()
    assert fit.clock.now_ns == FakeClock().now_ns
    fit.finish()

    assert fit.facts("tail_ns") == [5 * MS] * 5


@pytest.mark.parametrize(
    ("module", "world_size", "said"),
    [
        (torch.nn.Linear(1, 1), 1, "not applicable: one rank reduces nothing"),
        (
            torch.nn.Linear(1, 1),
            2,
            "not covered: Linear is not DistributedDataParallel, and has none inside",
        ),
    ],
)
def test_without_ddp_there_is_a_reason(module: object, world_size: int, said: str) -> None:
    """Never a tail of zero."""
    objects = FitObjects(device=torch.device("cpu"), module=module, world_size=world_size)
    chosen = choose(objects, EVERYTHING)

    assert chosen.tail is None
    assert chosen.reasons["tail_ns"] == said
