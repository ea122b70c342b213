"""Collectives between the devices of processes: gloo, run by a stream of its own as NCCL's are."""

import time
from collections import deque
from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from support.device.build import extension
from support.device.frontend import NAME, stream


BACKEND = "threaded_gloo"

Tensors = list[torch.Tensor]


class Collective(dist._Work):
    """A collective that is queued: `wait` lets the current stream wait for it, not the host."""

    def __init__(self, results: object, kept: object, side: torch.Stream) -> None:
        super().__init__()
        self._kept = kept
        self._done = torch.Event(device=side.device)
        self._done.record(side)
        self._future: torch.futures.Future[object] = torch.futures.Future(devices=[side.device])
        with stream(side):
            self._future.set_result(results)

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Let the current stream wait."""
        torch.accelerator.current_stream(self._done.device).wait_event(self._done)
        self._kept = None
        return True

    def is_completed(self) -> bool:
        """Tell whether the device has come here."""
        return bool(self._done.query())

    def get_future(self) -> "torch.futures.Future[object]":
        """Return what callbacks are hung on."""
        return self._future


class Group(dist.ProcessGroup):
    """Ranks whose devices talk to each other; tensors of the host go through gloo as they are."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: timedelta) -> None:
        super().__init__(rank, size)
        self._gloo = dist.ProcessGroupGloo(store, rank, size, timeout)
        self._sides: dict[torch.device, torch.Stream] = {}
        self._works: deque[Collective] = deque(maxlen=64)
        """Kept: torch 2.6 lets go of Python's half of one, and the other half waits for ever."""

    def getBackendName(self) -> str:  # noqa: N802 the name that PyTorch asks for
        """Return the name it is registered by."""
        return BACKEND

    def allreduce(self, tensors: Tensors, opts: object = None) -> dist.Work:
        """Reduce in place."""
        return self._run("allreduce", tensors, tensors, tensors, opts)

    def allreduce_coalesced(self, tensors: Tensors, opts: object = None) -> dist.Work:
        """Reduce several in place."""
        for tensor in tensors[:-1]:
            self.allreduce([tensor])
        return self.allreduce(tensors[-1:])

    def broadcast(self, tensors: Tensors, opts: object = None) -> dist.Work:
        """Take what the root has."""
        return self._run("broadcast", tensors, tensors, tensors, opts)

    def allgather(self, outputs: list[Tensors], inputs: Tensors, opts: object = None) -> dist.Work:
        """Bring together what every rank has."""
        kept = [*outputs[0], *inputs]
        return self._run("allgather", outputs, kept, outputs, inputs, opts)

    def barrier(self, opts: object = None) -> dist.Work:
        """Wait for every rank, on the host."""
        self._catch_up()
        return self._gloo.barrier()

    def _catch_up(self) -> None:
        """Let gloo have what is queued first: it tells collectives apart by their order alone."""
        while not all(side.query() for side in self._sides.values()):
            time.sleep(0.0005)

    def _run(self, name: str, results: object, tensors: Tensors, *arguments: object) -> dist.Work:
        call: Callable[..., dist.Work] = getattr(self._gloo, name)
        arguments = tuple(each for each in arguments if each is not None)
        if tensors[0].device.type != NAME:
            self._catch_up()
            return call(*arguments)
        device = tensors[0].device
        if device not in self._sides:
            self._sides[device] = torch.Stream(device=device)
        side = self._sides[device]
        ready = torch.Event(device=device)
        ready.record(torch.accelerator.current_stream(device))
        side.wait_event(ready)
        views = _host_views(arguments)
        with stream(side):
            extension().queue_host_function(
                device.index, f"{BACKEND}::{name}", lambda: call(*views).wait()
            )
        self._works.append(Collective(results, tensors, side))
        return self._works[-1]


def register() -> None:
    """Let `init_process_group` find it by its name."""
    dist.Backend.register_backend(BACKEND, Group, devices=["cpu", NAME])


def _host_views(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return extension().host_view(value)
    if isinstance(value, list | tuple):
        return type(value)(_host_views(each) for each in value)
    return value
