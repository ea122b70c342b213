"""DataParallel against DDP: replicas as threads of one process, or as processes.

`DataParallel` itself drives CUDA devices only.  Its scheme runs on CPU cores as well: in every step
one process copies the weights to each replica, runs a thread per replica, and adds up the
gradients.  (`DataParallel` even makes the replicas anew.)  DDP is torch's own, over gloo.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from torch import Tensor, distributed, multiprocessing, nn
from torch.nn.parallel import DistributedDataParallel

from recipes.cases.case import Case, MeasuredRow
from recipes.cases.measuring import paired
from recipes.cases.processor import threads
from recipes.cases.reports import before
from recipes.cases.verdicts import verdict
from recipes.claims.bench import ClaimBench, same, sgd
from recipes.claims.published import DATA_PARALLEL
from trainperf.benchmark import benchmark_step


REPLICAS = 2
REDUCED = "of it the gradients, to and fro over gloo"
GLOO = "gloo carries every gradient through sockets, and two threads share memory"
RANKS = (
    "these layers release the interpreter's lock while they compute, and a rank costs more than a "
    "thread: hooks, buckets, an update of its own"
)
REDUCE_ONLY = 0
"""Rows of a step that only adds up as many values as there are gradients."""

PATIENCE_S = 300.0
"""A rank that has not answered by then has died."""


def data_parallel(bench: ClaimBench) -> Case:
    """Steps of two replicas by threads, and by two ranks; both on one core each."""
    layers, rows_each = bench.pick((4, 8), (40, 32))
    with threads(1), ranks(layers) as processes:
        rows = paired(
            {
                "threads of one process": _Threads(layers).step,
                "a process per replica": processes.step,
            },
            rows_each,
            seconds=3 * bench.seconds,
        )
        reduced = benchmark_step(processes.step, REDUCE_ONLY, warmup=2)
    return Case(
        name="data_parallel",
        claim="DDP, a process per replica, is faster than DataParallel, threads of one process.",
        change=(
            "- model = torch.nn.DataParallel(model)",
            "+ model = DistributedDataParallel(model)  # torchrun --nproc-per-node 2",
        ),
        measured=(*rows, MeasuredRow(what=REDUCED, value=reduced.median_s)),
        published=DATA_PARALLEL,
        **before(_fit(bench, layers, rows_each), "data_parallel"),
        **verdict(rows[1], "faster", why=_why(rows, reduced.median_s)),
    )


def _why(rows: tuple[MeasuredRow, ...], reducing_s: float) -> str:
    """What explains more than half of what processes take longer."""
    longer_s = (rows[1].value or 0.0) - (rows[0].value or 0.0)
    return GLOO if reducing_s > longer_s / 2 else RANKS


def network(layers: int) -> nn.Module:
    """Many small layers: much Python per arithmetic, as in most models at small batches."""
    parts = (part for _ in range(layers) for part in (nn.Linear(64, 64), nn.Tanh()))
    return same(lambda: nn.Sequential(*parts))


class _Threads:
    """The scheme of `DataParallel`."""

    def __init__(self, layers: int) -> None:
        self._model = network(layers)
        self._optimizer = torch.optim.SGD(self._model.parameters(), lr=1e-3)
        self._replicas = [network(layers) for _ in range(REPLICAS)]
        self._rows = [batch_of(rank) for rank in range(REPLICAS)]

    def step(self, rows: int) -> Tensor:
        """One update; a gradient over all rows, to be compared."""
        weights: list[Tensor] = list(self._model.parameters())
        for replica in self._replicas:
            copies: list[Tensor] = list(replica.parameters())
            with torch.no_grad():
                torch._foreach_copy_(copies, weights)
            replica.zero_grad()
        running = [
            threading.Thread(target=_learn, args=(replica, data[:rows]))
            for replica, data in zip(self._replicas, self._rows, strict=True)
        ]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        gradients = [[p.grad for p in replica.parameters()] for replica in self._replicas]
        for weight, *parts in zip(weights, *gradients, strict=True):
            weight.grad = sum(parts) / REPLICAS
        self._optimizer.step()
        return _compared(self._model)


class Ranks:
    """Two DDP ranks that step when they are told to."""

    def __init__(self, pipes: list[Connection], workers: list[BaseProcess]) -> None:
        self._pipes, self._workers = pipes, workers

    def step(self, rows: int) -> Tensor:
        """One update on all ranks; a gradient of the first, to be compared."""
        for pipe in self._pipes:
            pipe.send(rows)
        answers: list[Tensor] = []
        for pipe in self._pipes:
            if not pipe.poll(PATIENCE_S):
                raise RuntimeError(f"a rank has not answered for {PATIENCE_S:.0f} s")
            answers.append(torch.tensor(pipe.recv()))
        return answers[0]

    def close(self) -> None:
        """Let the ranks end; one that does not is ended."""
        for pipe in self._pipes:
            pipe.close()
        for worker in self._workers:
            worker.join(10.0)
            if worker.is_alive():
                worker.kill()
                worker.join()


@contextmanager
def ranks(layers: int) -> Iterator[Ranks]:
    """Ranks for as long as the block lasts."""
    context = multiprocessing.get_context("spawn")
    pipes: list[Connection] = []
    workers: list[BaseProcess] = []
    with TemporaryDirectory() as folder:
        for rank in range(REPLICAS):
            ours, theirs = context.Pipe()
            worker = context.Process(
                target=_serve, args=(rank, layers, theirs, f"{folder}/store"), daemon=True
            )
            worker.start()
            theirs.close()
            pipes.append(ours)
            workers.append(worker)
        started = Ranks(pipes, workers)
        try:
            yield started
        finally:
            started.close()


def _serve(rank: int, layers: int, pipe: Connection, store: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{store}",
        rank=rank,
        world_size=REPLICAS,
        timeout=timedelta(seconds=PATIENCE_S),
    )
    model = DistributedDataParallel(network(layers))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    data = batch_of(rank)
    gradients = torch.zeros(sum(weight.numel() for weight in model.parameters()))
    try:
        while True:
            rows = pipe.recv()
            if rows == REDUCE_ONLY:
                distributed.all_reduce(gradients)
            else:
                optimizer.zero_grad()
                _learn(model, data[:rows])
                optimizer.step()
            pipe.send(_compared(model).tolist())
    except EOFError:  # the parent has closed its end
        distributed.destroy_process_group()


def batch_of(rank: int) -> Tensor:
    """The rows of a replica."""
    return torch.randn(256, 64, generator=torch.Generator().manual_seed(rank))


def _learn(model: nn.Module, rows: Tensor) -> None:
    model(rows).square().mean().backward()


def _compared(model: nn.Module) -> Tensor:
    """A row of the first layer's gradient.

    Unlike a weight after a few small updates, it is another one altogether where the rows of a
    replica are missing, or gradients are added and not averaged.
    """
    gradient = next(model.parameters()).grad
    return torch.zeros(1) if gradient is None else gradient[0].clone()


def _fit(bench: ClaimBench, layers: int, rows: int) -> Path:
    model = torch.nn.DataParallel(network(layers).to(bench.device))
    training = sgd(model, lambda module, batch: module(batch[0]).square().mean())
    return bench.fit("data_parallel", training, [(batch_of(0)[:rows].to(bench.device),)])
