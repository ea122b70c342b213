"""One of two ranks whose plain loops tell, next to their records, when the last bucket was sent.

A communication hook of the test's own is wrapped around the one that is tried: it notes when that
has begun to reduce a bucket.  Every loop runs once without a monitor, for its parameters.
"""

import json
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from trainperf.loop import LoopMonitor


STEPS = 36
LATE_S = 0.005
BUCKETS = {"bucket_cap_mb": 0.001}

Hook = Callable[[Any, dist.GradBucket], torch.futures.Future[Tensor]]


class Layers(nn.Module):
    """Layers one after the other, the first of which may be left out."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(16, 16) for _ in range(4)])
        self.skipped = 0

    def forward(self, x: Tensor) -> Tensor:
        """Through all layers but those that are skipped."""
        for layer in self.layers[self.skipped :]:
            x = layer(x)
        return x.square().mean()


@dataclass
class Noted:
    """What the test's own hook and clock saw of one loop."""

    buckets: int = 0
    last_ns: int = 0
    tail_ns: int = 0
    """From the last bucket being sent to backward having returned, in all passes of a step."""
    tails_ns: list[int] = field(default_factory=list)
    """The same of each step."""

    def around(self, hook: Hook) -> Hook:
        """The same hook, and a note of when it has returned."""

        def noting(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[Tensor]:
            self.buckets += 1
            reduced = hook(state, bucket)
            self.last_ns = time.perf_counter_ns()
            return reduced

        return noting


@dataclass(kw_only=True)
class Case:
    """A way to train under DDP."""

    modules: Callable[[], Sequence[nn.Module]] = lambda: [Layers()]
    options: dict[str, Any] = field(default_factory=dict)
    compiled: bool = False
    accumulates: int = 1
    reduces_each: bool = False
    """Whether every micro-batch is reduced, as without `no_sync`."""
    skips: Callable[[int], int] = lambda step: 0
    hook: Hook = default_hooks.allreduce_hook
    state: Callable[[], Any] = lambda: None


def _power() -> powerSGD_hook.PowerSGDState:
    return powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=4, min_compression_rate=1)


CASES = {
    "plain": Case(),
    "unused": Case(options={"find_unused_parameters": True}, skips=lambda step: step >= 10),
    "joins": Case(options={"find_unused_parameters": True}, skips=lambda step: step < 10),
    "static_graph": Case(options={"static_graph": True}),
    "bucket_view": Case(options={"gradient_as_bucket_view": True}),
    "accumulates": Case(accumulates=3),
    "reduces_each": Case(accumulates=2, reduces_each=True),
    "fp16": Case(hook=default_hooks.fp16_compress_hook),
    # One bucket: gloo runs collectives in turn, and this hook starts some when others have ended.
    "power_sgd": Case(
        hook=powerSGD_hook.powerSGD_hook, state=_power, options={"bucket_cap_mb": 25}
    ),
    "compiled": Case(
        modules=lambda: [torch.compile(Layers(), backend="aot_eager")],
        options={"bucket_cap_mb": 25},  # torch splits graphs at buckets, and refuses smaller ones
    ),
    "compiled_wrapper": Case(compiled=True, options={"bucket_cap_mb": 25}),
    "in_turns": Case(modules=lambda: [Layers(), Layers()]),
}


class Loop:
    """One case on this rank, with a monitor or without."""

    def __init__(self, case: Case, base: Path | None) -> None:
        torch.manual_seed(0)
        torch._dynamo.reset()
        self.case, self.noted = case, Noted()
        self.wrappers = [
            DistributedDataParallel(module, **{**BUCKETS, **case.options})
            for module in case.modules()
        ]
        self.called: list[Any] = list(self.wrappers)
        for wrapper in self.wrappers:
            wrapper.register_comm_hook(case.state(), self.noted.around(case.hook))
        if case.compiled:
            self.called = [torch.compile(each, backend="aot_eager") for each in self.wrappers]
        self.parameters = [p for wrapper in self.wrappers for p in wrapper.parameters()]
        self.optimizer = torch.optim.SGD(self.parameters, 0.01)
        self.monitor = None if base is None else LoopMonitor(base, report=False, lines=False)
        if self.monitor is not None:
            watched = self.called if len(self.called) > 1 else self.called[0]
            self.monitor.watch(watched, self.optimizer)

    def train(self) -> "Loop":
        """All steps."""
        accumulates = self.case.accumulates
        for number, batch in enumerate(_batches(self.monitor, STEPS * accumulates)):
            step, micro_batch = divmod(number, accumulates)
            last = micro_batch == accumulates - 1
            for wrapper, module in zip(self.wrappers, self.called, strict=True):
                if isinstance(wrapper.module, Layers):
                    wrapper.module.skipped = int(self.case.skips(step))
                reduces = last or self.case.reduces_each
                with nullcontext() if reduces else wrapper.no_sync():
                    self.pass_through(module, batch)
            if reduces:
                self.noted.tail_ns += time.perf_counter_ns() - self.noted.last_ns
            if last:
                self.update()
        if self.monitor is not None:
            self.monitor.close()
        return self

    def pass_through(self, module: nn.Module, batch: Tensor) -> None:
        """Forward and backward of one module; rank 1 is late in between."""
        loss = module(batch)
        time.sleep(LATE_S * dist.get_rank())
        with nullcontext() if self.monitor is None else self.monitor.phase("backward"):
            loss.backward()

    def update(self) -> None:
        """The end of a step."""
        self.noted.tails_ns.append(self.noted.tail_ns)
        self.noted.tail_ns = 0
        self.optimizer.step()
        self.optimizer.zero_grad()
        if self.monitor is not None:
            self.monitor.end_step()

    @property
    def flat(self) -> list[list[float]]:
        """The parameters."""
        return [parameter.flatten().tolist() for parameter in self.parameters]


def _batches(monitor: LoopMonitor | None, number: int) -> Iterator[Tensor]:
    batches = [torch.ones(2, 16) * (1 + step % 3) for step in range(number)]
    return iter(batches if monitor is None else monitor.batches(batches))


def main(root: Path) -> None:
    """All cases, in the same order on both ranks."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    for name, case in CASES.items():
        bare, measured = Loop(case, None).train(), Loop(case, root / name).train()
        monitor = measured.monitor
        (root / f"{name}-{rank}.json").write_text(
            json.dumps(
                {
                    "tails_ns": measured.noted.tails_ns,
                    "buckets": [bare.noted.buckets, measured.noted.buckets],
                    "same_parameters": bare.flat == measured.flat,
                    "faults": monitor.monitor.guard.faults if monitor else None,
                }
            )
        )
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
