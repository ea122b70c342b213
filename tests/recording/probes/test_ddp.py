"""The all-reduce tail of a real DDP module, on a clock that only the all-reduce moves."""

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
from support.live import MS, DeviceFit, HostFit
from torch.nn.parallel import DistributedDataParallel

from trainperf.core.phases import Tag
from trainperf.recording.probes.ddp import NO_BACKWARD, TailProbe
from trainperf.recording.probes.device_marks import Mark
from trainperf.recording.probes.last_gradient import CHECK_EVERY, CHECK_FIRST, RELEARN_FIRST
from trainperf.recording.probes.selection import EVERYTHING, FitObjects, choose
from trainperf.testing import FakeClock


@pytest.fixture(autouse=True)
def _one_rank() -> Iterator[None]:
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Branches(torch.nn.Module):
    """Layers one after the other; which of them come first can be changed, or be left out."""

    def __init__(self, layers: int = 4) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList([torch.nn.Linear(8, 8) for _ in range(layers)])
        self.order = list(range(layers))
        self.before_gradients_of_first: Callable[[], None] = lambda: None
        self.first = {0}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Through the layers that are used."""
        for number in self.order:
            x = self.layers[number](x)
            if number in self.first and x.requires_grad:
                x.register_hook(lambda _: self.before_gradients_of_first())
        return x.sum()


class Training:
    """A DDP module whose all-reduce takes as long as it is told, a bucket."""

    def __init__(self, *, reduce_ms: float = 5.0, layers: int = 4) -> None:
        self.fit: HostFit | DeviceFit
        self.model = Branches(layers)
        self.module = DistributedDataParallel(
            self.model,
            bucket_cap_mb=0.0001,  # a bucket a layer
            find_unused_parameters=True,
        )
        self.reduce_ms = reduce_ms
        self.reduced = 0
        self.on_device = False
        self.module.register_comm_hook(None, self._reduce)

    def _reduce(self, state: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        self.reduced += 1
        if self.on_device and isinstance(self.fit, DeviceFit):
            self.fit.device.work(self.reduce_ms)
        else:
            self.fit.clock.advance(ms=self.reduce_ms)
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    def on_host(self) -> TailProbe:
        """Measure with the host's clock."""
        self.probe = TailProbe([self.module])
        self.fit = HostFit(self.probe)
        return self.probe

    def ends(self) -> None:
        """Backward has returned."""
        self.probe.ending(self.fit.monitor.guard)()

    def step(
        self, *, micro_batches: int = 1, user_hook_ms: float = 0.0, no_sync: bool = True
    ) -> None:
        """Micro-batches, of which only the last one synchronises under *no_sync*."""
        for number in range(micro_batches):
            last = number == micro_batches - 1
            self.fit.monitor.recorder.boundary()
            with self.module.no_sync() if no_sync and not last else nullcontext():
                loss = self.module(torch.ones(2, 8))
                loss.backward()
            self.ends()
            self.fit.clock.advance(ms=user_hook_ms)
            self.fit.monitor.micro_batch(None, None, complete=last)

    def tails_ms(self, *steps: int, orders: Sequence[Sequence[int]] = ()) -> list[float | None]:
        """Tails of so many steps in each of the orders, by default in the one that is set."""
        for number, order in zip(steps, orders or [self.model.order], strict=True):
            self.model.order = list(order)
            for _ in range(number):
                self.step()
        self.fit.monitor.finish("finished")
        tails = self.fit.facts("tail_ns")
        return [None if tail is None else tail / MS for tail in tails]


def tagged(fit: HostFit) -> list[int]:
    """Steps in which the last parameter was looked for."""
    return [record.index for record in fit.sink.records if record.tags & Tag.AUDITED]


def test_the_tail_is_what_follows_the_last_gradient() -> None:
    """Four buckets of 5 ms: three are reduced while gradients are still being computed."""
    training = Training()
    training.on_host()
    tails = training.tails_ms(6)

    assert training.reduced >= 4 * 5
    assert tails == [None, None, 5, 5, 5, 5]
    assert tagged(training.fit) == [1]


def test_reductions_are_counted_beside_the_micro_batches() -> None:
    """Three micro-batches a step: one reduction under `no_sync`, three without it."""
    sound, missing = Training(), Training()
    for training, synchronized in ((sound, False), (missing, True)):
        probe = training.on_host()
        for _ in range(4):
            training.step(micro_batches=3, no_sync=not synchronized)
        training.fit.monitor.finish("finished")
        found = probe.config()
        assert found["allreduces_per_step"] == (3 if synchronized else 1)
        assert found["micro_batches_per_step"] == 3


def test_no_sync_around_backward_alone_holds_nothing_back() -> None:
    """DDP prepares the reduction in forward: it happens, and its tail is measured."""
    training = Training()
    probe = training.on_host()
    for _ in range(4):
        training.fit.monitor.recorder.boundary()
        loss = training.module(torch.ones(2, 8))
        with training.module.no_sync():
            loss.backward()
        training.ends()
        training.fit.monitor.micro_batch(None, None, complete=True)

    training.fit.monitor.finish("finished")
    assert training.fit.facts("tail_ns")[2:] == [5 * MS, 5 * MS]
    assert probe.config()["allreduces_per_step"] == 1


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


def test_nothing_to_reduce_is_a_tail_of_nothing() -> None:
    """Zero is a measurement."""
    training = Training(reduce_ms=0)
    training.on_host()

    assert training.tails_ms(5)[2:] == [0, 0, 0]


def test_hooks_of_the_user_are_not_in_the_tail() -> None:
    """It ends when backward returns."""
    training = Training()
    training.on_host()
    for _ in range(4):
        training.step(user_hook_ms=100)

    assert training.tails_ms(1)[2:] == [5, 5, 5]


def test_micro_batches_that_do_not_synchronise_have_no_tail() -> None:
    """Under `no_sync` nothing is reduced."""
    training = Training()
    training.on_host()
    for _ in range(5):
        training.step(micro_batches=3)
    training.fit.monitor.finish("finished")

    assert training.fit.facts("tail_ns")[2:] == [5 * MS] * 3
    assert tagged(training.fit) == [1]


def test_another_last_parameter_is_learnt_when_the_old_one_is_silent() -> None:
    """The first layer is no longer used: one step without a tail, one to learn, and on."""
    training = Training()
    training.on_host()
    for _ in range(4):
        training.step()
    training.model.order = [1, 2, 3]
    tails = training.tails_ms(5)

    assert tails[:4] == [None, None, 5, 5]
    assert tails[4:6] == [None, None]
    assert all(tail is not None for tail in tails[6:])
    assert tagged(training.fit) == [1, 5]


def test_a_hook_that_is_often_silent_is_not_chased() -> None:
    """Layer drop: the last gradient is another one every time.  Few steps are spent on it."""
    training = Training(layers=14)
    training.on_host()
    draw = random.Random(7)  # noqa: S311 a test
    for _ in range(300):
        training.model.order = [draw.randrange(12), 12, 13]
        training.step()
    training.fit.monitor.finish("finished")

    learnt = tagged(training.fit)
    assert 3 <= len(learnt) <= 8
    assert learnt[-1] - learnt[-2] > 50


def slow_first_layer() -> Training:
    """Its gradients take 7 ms to compute: a hook on a later layer hears too early by as much."""
    training = Training(reduce_ms=0)
    training.on_host()
    training.model.before_gradients_of_first = lambda: training.fit.clock.advance(ms=7)
    return training


def test_branches_that_take_turns_are_both_watched() -> None:
    """Each was last once: neither is learnt anew, and every step has its tail."""
    training = slow_first_layer()
    tails = training.tails_ms(*[3] * 20, orders=[[branch % 2, 2, 3] for branch in range(20)])

    assert tagged(training.fit) == [1, 4]
    assert tails[5:] == [0] * 55


def test_a_gradient_that_comes_after_the_last_is_noticed_soon() -> None:
    """An earlier layer joins in: the old hook still runs, and what it tells is too long."""
    training = slow_first_layer()
    tails = training.tails_ms(10, CHECK_FIRST + 24, orders=[[1, 2, 3], [0, 1, 2, 3]])

    assert tails[2:10] == [0] * 8
    learnt = tails.index(None, 10)
    assert learnt <= 10 + CHECK_FIRST
    assert set(tails[10:learnt]) == {7}
    assert set(tails[learnt + 1 :]) == {0}
    assert tagged(training.fit) == [1, learnt]


def test_a_late_drift_is_noticed_within_the_longest_wait_and_the_next_one_soon() -> None:
    """Looks become rarer while nothing changes, and begin anew with a change."""
    training = slow_first_layer()
    training.model.first = {0, 1}
    steady, drifted = 600, CHECK_EVERY + 2
    tails = training.tails_ms(
        steady, drifted, CHECK_FIRST * 3, orders=[[2, 3], [1, 2, 3], [0, 1, 2, 3]]
    )

    _, first, second = tagged(training.fit)
    # At 66, 194 and 450 nothing was to be noticed.
    assert CHECK_FIRST < first - steady <= CHECK_EVERY
    assert second - (steady + drifted) <= 2 * CHECK_FIRST
    assert set(tails[first + 1 : steady + drifted]) == {0}
    assert set(tails[second + 1 :]) == {0}


def test_looks_become_rarer_while_nothing_changes() -> None:
    """Of a thousand ordinary passes some ten have anything looked up."""
    training = Training(reduce_ms=0)
    training.on_host()
    slow = 0

    class Counted(TailProbe):
        def backward_ends(self) -> None:
            nonlocal slow
            slow += 1
            super().backward_ends()

    training.probe = Counted([training.module])
    training.fit = HostFit(training.probe)
    for _ in range(RELEARN_FIRST - 10):
        training.step()
    training.fit.monitor.finish("finished")

    # Two backwards to learn, and at 66, 194, 450 and 962 one to plan a look and one that looks.
    assert slow <= 12


def test_a_long_way_from_the_last_gradient_to_the_end_is_no_drift() -> None:
    """A communication hook that works hard on its last bucket is known to: nothing is learnt."""
    training = Training(reduce_ms=500)
    training.on_host()

    assert set(training.tails_ms(100)[2:]) == {500}
    assert tagged(training.fit) == [1]


def test_a_layer_that_is_frozen_and_thawed_leaves_no_wrong_tail_behind() -> None:
    """Frozen, its hook is silent; thawed, its gradient comes after that of another."""
    training = slow_first_layer()
    for frozen in (False, True, False):
        training.model.layers[0].requires_grad_(not frozen)
        for _ in range(40):
            training.step()
    training.fit.monitor.finish("finished")

    tails = training.fit.facts("tail_ns")
    assert tails[40:42] == [None, None]
    assert {*tails[2:40], *tails[42:80], *tails[86 + CHECK_FIRST :]} <= {0, None}
    assert tails.count(None) <= 6


def test_it_is_learnt_again_from_time_to_time() -> None:
    """The order may drift without a silence; where it does not, it is looked up ever less often."""
    training = Training(layers=1)
    training.on_host()
    for _ in range(3 * RELEARN_FIRST + 10):
        training.step()
    training.fit.monitor.finish("finished")

    assert tagged(training.fit) == [1, RELEARN_FIRST + 1, 3 * RELEARN_FIRST + 1]


class Adversaries:
    """Two DDP modules that train in turns, as the two of a GAN; a bucket takes 5 ms."""

    def __init__(self) -> None:
        self.modules = [
            DistributedDataParallel(torch.nn.Linear(8, 8), bucket_cap_mb=0.0001) for _ in range(2)
        ]
        self.probe = TailProbe(self.modules)
        self.fit = HostFit(self.probe)
        for module in self.modules:
            module.register_comm_hook(None, self._reduce)

    def _reduce(self, _: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        self.fit.clock.advance(ms=5)
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

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
    """A module that a backward does not reach is no silence, and is not chased."""
    training = Adversaries()
    training.steps(60)

    learnt = tagged(training.fit)
    tails = training.fit.facts("tail_ns")
    assert {tail for tail in tails[10:] if tail is not None} == {10 * MS}
    assert len(learnt) <= 10
    assert [step for step, tail in enumerate(tails) if tail is None and step > 10] == [
        step for step in learnt if step > 10
    ]
    assert training.probe.config()["allreduces_per_step"] == pytest.approx(2, abs=0.1)


def test_one_backward_through_two_modules_has_one_tail() -> None:
    """From the last gradient of both: what the first one's reduction hides does not count."""
    training = Adversaries()
    for _ in range(6):
        training.fit.monitor.recorder.boundary()
        first, second = training.modules
        training.backward(second(first(torch.ones(2, 8))).sum())
        training.fit.monitor.micro_batch(None, None, complete=True)
    training.fit.monitor.finish("finished")

    assert training.fit.facts("tail_ns") == [None, None, *[5 * MS] * 4]
    assert training.probe.config()["allreduces_per_step"] == 1
    assert training.probe.config()["ddp_buckets"] == 2


def test_a_loop_that_announces_no_backward_has_a_reason() -> None:
    """Not a tail of zero, and not one without a word."""
    training = Training()
    training.on_host()
    training.fit.steps(3).finish()

    assert training.probe.reasons() == {"tail_ns": NO_BACKWARD}
    assert training.probe.config() == {}


def test_all_hooks_are_gone_at_the_end() -> None:
    """The module outlives the fit."""
    training = Training()
    training.on_host()
    training.tails_ms(4)

    hooks = [p._post_accumulate_grad_hooks for p in training.module.parameters()]
    assert not any(hooks)


def test_learning_leaves_nothing_behind_that_torch_looks_into_in_every_backward() -> None:
    """An empty dictionary of hooks costs as much as a hook, on every parameter of the model."""
    training = Training()
    training.on_host()
    for _ in range(4):
        training.step()

    parameters = list(training.module.parameters())
    assert [p._backward_hooks for p in parameters] == [None] * len(parameters)
    assert sum(p._post_accumulate_grad_hooks is not None for p in parameters) == 1
    training.fit.monitor.finish("finished")


def test_a_hook_of_the_user_on_a_parameter_stays() -> None:
    """Registered before, or while the last parameter is learnt."""
    training = Training()
    training.on_host()
    heard: list[int] = []
    early, late = training.model.layers[1].weight, training.model.layers[2].weight
    early.register_hook(lambda _: heard.append(1))
    training.step()
    late.register_hook(lambda _: heard.append(2))
    for _ in range(3):
        training.step()
    training.fit.monitor.finish("finished")

    assert heard == [1, *[2, 1] * 3]


def test_on_a_device_the_moment_is_marked_once_a_pass() -> None:
    """Not while learning, which would mark every parameter, and not without a reduction."""
    training = Training(reduce_ms=0)
    marked: list[int] = []
    training.probe = TailProbe([training.module], lambda: marked.append(0))
    training.fit = HostFit(training.probe)
    for _ in range(5):
        training.step(micro_batches=2)
    training.fit.monitor.finish("finished")

    assert len(marked) == 3
    assert training.fit.facts("tail_ns") == [None] * 5


def test_on_a_device_the_tail_is_the_devices_time() -> None:
    """What DDP made the compute stream wait for, between the two marks."""
    training = Training()
    training.probe = TailProbe([training.module], lambda: fit.marks.mark(Mark.LAST_GRADIENT))
    fit = training.fit = DeviceFit(probes=[training.probe])
    training.on_device = True
    for _ in range(5):
        fit.fetch()
        loss = training.module(torch.ones(2, 8))
        loss.backward()
        fit.marks.mark(Mark.BACKWARD_ENDS)
        training.ends()
        fit.end_step()
    assert fit.clock.now_ns == FakeClock().now_ns
    fit.finish()

    assert fit.facts("tail_ns") == [None, None, 5 * MS, 5 * MS, 5 * MS]


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
