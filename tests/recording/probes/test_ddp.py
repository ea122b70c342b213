"""The all-reduce tail of a real DDP module, on a clock that only the all-reduce moves."""

import random
from collections.abc import Iterator
from contextlib import nullcontext

import pytest
import torch
import torch.distributed as dist
from support.live import MS, DeviceFit, HostFit
from torch.nn.parallel import DistributedDataParallel

from trainperf.core.phases import Tag
from trainperf.recording.probes.ddp import RELEARN_EVERY, TailProbe
from trainperf.recording.probes.device_marks import Mark
from trainperf.recording.probes.selection import EVERYTHING, Objects, choose
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

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Through the layers that are used."""
        for number in self.order:
            x = self.layers[number](x)
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
        self.probe = TailProbe(self.module)
        self.fit = HostFit(self.probe)
        return self.probe

    def step(
        self, *, micro_batches: int = 1, user_hook_ms: float = 0.0, no_sync: bool = True
    ) -> None:
        """Micro-batches, of which only the last one synchronises under *no_sync*."""
        for number in range(micro_batches):
            last = number == micro_batches - 1
            self.fit.monitor.recorder.boundary()
            with self.module.no_sync() if no_sync and not last else nullcontext():
                loss = self.module(torch.ones(2, 8))
                self.probe.backward_begins()
                loss.backward()
            self.probe.backward_ends()
            self.fit.clock.advance(ms=user_hook_ms)
            self.fit.monitor.micro_batch(None, None, complete=last)

    def tails_ms(self, steps: int) -> list[float | None]:
        """Tails of so many steps."""
        for _ in range(steps):
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
            probe.backward_begins()
            loss.backward()
        probe.backward_ends()
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
    training = Training()
    training.on_host()
    draw = random.Random(7)  # noqa: S311 a test
    for _ in range(300):
        training.model.order = [draw.choice([0, 1]), 2, 3]
        training.step()
    training.fit.monitor.finish("finished")

    learnt = tagged(training.fit)
    assert 6 <= len(learnt) <= 10
    assert learnt[-1] - learnt[-2] > 50


def test_it_is_learnt_again_from_time_to_time() -> None:
    """The order drifts without a silence: once in a thousand passes it is looked up."""
    training = Training(layers=1)
    training.on_host()
    for _ in range(RELEARN_EVERY + 10):
        training.step()
    training.fit.monitor.finish("finished")

    assert tagged(training.fit) == [1, RELEARN_EVERY + 1]


def test_all_hooks_are_gone_at_the_end() -> None:
    """The module outlives the fit."""
    training = Training()
    training.on_host()
    training.tails_ms(4)

    hooks = [p._post_accumulate_grad_hooks for p in training.module.parameters()]
    assert not any(hooks)


def test_on_a_device_the_moment_is_marked_once_a_pass() -> None:
    """Not while learning, which would mark every parameter, and not without a reduction."""
    training = Training(reduce_ms=0)
    marked: list[int] = []
    training.probe = TailProbe(training.module, lambda: marked.append(0))
    training.fit = HostFit(training.probe)
    for _ in range(5):
        training.step(micro_batches=2)
    training.fit.monitor.finish("finished")

    assert len(marked) == 3
    assert training.fit.facts("tail_ns") == [None] * 5


def test_on_a_device_the_tail_is_the_devices_time() -> None:
    """What DDP made the compute stream wait for, between the two marks."""
    training = Training()
    training.probe = TailProbe(training.module, lambda: fit.marks.mark(Mark.LAST_GRADIENT))
    fit = training.fit = DeviceFit(probes=[training.probe])
    training.on_device = True
    for _ in range(5):
        fit.fetch()
        loss = training.module(torch.ones(2, 8))
        training.probe.backward_begins()
        loss.backward()
        fit.marks.mark(Mark.BACKWARD_ENDS)
        training.probe.backward_ends()
        fit.end_step()
    assert fit.clock.now_ns == FakeClock().now_ns
    fit.finish()

    assert fit.facts("tail_ns") == [None, None, 5 * MS, 5 * MS, 5 * MS]


@pytest.mark.parametrize(
    ("module", "world_size", "said"),
    [
        (torch.nn.Linear(1, 1), 1, "not applicable: one rank reduces nothing"),
        (torch.nn.Linear(1, 1), 2, "not covered: Linear is not DistributedDataParallel"),
    ],
)
def test_without_ddp_there_is_a_reason(module: object, world_size: int, said: str) -> None:
    """Never a tail of zero."""
    objects = Objects(device=torch.device("cpu"), module=module, world_size=world_size)
    chosen = choose(objects, EVERYTHING)

    assert chosen.tail is None
    assert chosen.reasons["tail_ns"] == said
