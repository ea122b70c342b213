"""Dynamic batching: requests that arrive one by one go through a model together."""

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Generic, TypeVar

from typing_extensions import Self

from trainperf.core.errors import (
    BatcherClosedError,
    BatcherFullError,
    BatchFailedError,
    ConfigError,
)


Request = TypeVar("Request")
Answer = TypeVar("Answer")

_CLOSED = "the batcher is closed: submit() only inside of `async with DynamicBatcher(…)`"


@dataclass(slots=True, kw_only=True, eq=False)
class _Queued(Generic[Request, Answer]):
    """A request, and the future that its caller waits for."""

    number: int
    request: Request
    key: Hashable
    arrived_s: float
    answer: "asyncio.Future[Answer]"


class DynamicBatcher(Generic[Request, Answer]):
    """Gathers requests of many callers and runs them in batches, one batch at a time, in a thread.

        async with DynamicBatcher(run, max_batch_size=32, max_wait_s=0.005) as batcher:
            answer = await batcher.submit(request)

    A batch starts when the thread is free and either *max_batch_size* requests of one key are there
    or the oldest has waited *max_wait_s*; while a batch runs the next one gathers.  Within a key
    requests start in the order in which they were accepted.

    Every caller gets exactly one of: the answer to its own request; the exception of its own
    batch; its own cancellation; `BatcherClosedError`.  A request whose caller was cancelled or
    timed out before its batch started is not computed; a batch that runs cannot be stopped.

    *run* sets its own `torch.inference_mode()`, autocast and CUDA device: they belong to a thread,
    and those of the caller's thread do not hold in the worker's.

    It is for one event loop, and no server: neither priorities nor several devices.  Worth it where
    a batch takes less time than its requests one by one (see `trainperf.benchmark.sweep`); a lone
    request pays up to *max_wait_s* for nothing.  Time is the event loop's, monotonic; on Linux its
    timers are up to a millisecond late.

    Args:
        run: From the requests of a batch to as many answers in their order: a list, or a tensor's
            rows.  An answer that is an `Exception` is raised for its own caller alone.
        max_batch_size: Requests in a batch, at most.
        max_wait_s: Seconds that a request waits for others while the thread is free.
        max_pending: Requests that wait for their batch to start, at most: back-pressure.
        key: Only requests of equal keys share a batch, e.g. `lambda tokens: len(tokens)`; without
            it all do, and *run* pads them.  Called in the caller's task.

    Raises:
        ConfigError: A value is refused; the message says which.
    """

    def __init__(
        self,
        run: Callable[[list[Request]], Iterable[Answer | Exception]],
        *,
        max_batch_size: int = 32,
        max_wait_s: float = 0.005,
        max_pending: int = 1024,
        key: Callable[[Request], Hashable] | None = None,
    ) -> None:
        if max_batch_size < 1:
            raise ConfigError(f"max_batch_size={max_batch_size}: must be at least 1")
        if not (math.isfinite(max_wait_s) and max_wait_s >= 0):
            raise ConfigError(f"max_wait_s={max_wait_s}: must be finite and at least 0; try 0.005")
        if max_pending < max_batch_size:
            raise ConfigError(
                f"max_pending={max_pending}: no batch would ever be full; "
                f"must be at least max_batch_size={max_batch_size}"
            )
        self._run, self._key = run, key
        self._max_batch_size, self._max_wait_s = max_batch_size, max_wait_s
        self._max_pending = max_pending
        # Ordered dictionaries: the first goes, and any that is cancelled, at the same small cost.
        self._groups: dict[Hashable, OrderedDict[int, _Queued[Request, Answer]]] = {}
        self._blocked: OrderedDict[int, _Queued[Request, Answer]] = OrderedDict()
        self._running: list[_Queued[Request, Answer]] | None = None
        self._pending = self._numbered = 0
        self._accepting = self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._idle = asyncio.Event()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trainperf-batcher")

    @property
    def pending(self) -> int:
        """Requests whose batch has not started; at most *max_pending*."""
        return self._pending

    async def __aenter__(self) -> Self:
        if self._loop is not None or self._closed:
            raise ConfigError("this batcher was open or closed before: make a new one")
        # The thread starts here: where none can be started, the owner is told and no caller waits.
        self._worker.submit(int)
        self._loop, self._accepting = asyncio.get_running_loop(), True
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close(drain=kind is None)

    async def submit(self, request: Request, *, wait: bool = True) -> Answer:
        """The answer to *request*, once its batch has run.

        Bound it with `asyncio.wait_for`: what has timed out leaves the queue.

        Args:
            request: What *run* gets, among others.
            wait: Whether to wait for a place where *max_pending* requests are queued.  Who waits
                has not been accepted yet; how many do is not bounded here.

        Raises:
            BatcherFullError: There is no place, and *wait* is false.
            BatcherClosedError: The batcher is not open, or was closed before the batch had run.
            BatchFailedError: *run* returned something else than an answer per request, or raised
                what cannot be handed on (`SystemExit`, `StopIteration`, …): its cause.
            Exception: Whatever *run* raised, the same object for all callers of the batch.
        """
        loop = self._open_loop()
        key = None if self._key is None else self._key(request)
        hash(key)  # refused here, before it is queued
        if self._pending >= self._max_pending and not wait:
            raise BatcherFullError(
                f"{self._pending} requests are queued (max_pending): turn this one away, retry "
                "later, or submit(…, wait=True)"
            )
        self._numbered += 1
        entry: _Queued[Request, Answer] = _Queued(
            number=self._numbered,
            request=request,
            key=key,
            arrived_s=loop.time(),
            answer=loop.create_future(),
        )
        self._blocked[entry.number] = entry
        self._advance()
        try:
            return await entry.answer
        finally:
            self._forget(entry)

    async def close(self, *, drain: bool = True) -> None:
        """Accept nothing more; return when no accepted request is left.

        Callers that wait for a place are refused.  May be called again, e.g. without *drain* after
        draining took too long.

        Args:
            drain: Whether to run what was accepted.  If not, all callers get `BatcherClosedError`
                at once; a batch that runs is left to its end, which nobody waits for but Python
                when it exits.
        """
        self._accepting, self._closed = False, True
        refused = list(self._blocked.values())
        self._blocked.clear()
        if not drain:
            refused += [entry for group in self._groups.values() for entry in group.values()]
            refused += self._running or ()
            self._groups.clear()
            self._pending = 0
        for entry in refused:
            _fail(entry, BatcherClosedError(_CLOSED))
        self._advance()
        while drain and (self._pending or self._running is not None):
            self._idle.clear()
            await self._idle.wait()
        self._worker.shutdown(wait=False)

    def _open_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or not self._accepting:
            raise BatcherClosedError(_CLOSED)
        if asyncio.get_running_loop() is not self._loop:
            raise ConfigError(
                "submit() from another event loop than the batcher's: use "
                "asyncio.run_coroutine_threadsafe(batcher.submit(request), its_loop)"
            )
        return self._loop

    def _forget(self, entry: _Queued[Request, Answer]) -> None:
        """Its caller is leaving: with an answer, or cancelled while it waited."""
        self._blocked.pop(entry.number, None)
        group = self._groups.get(entry.key)
        if group is not None and group.pop(entry.number, None) is not None:
            self._pending -= 1
            if not group:
                del self._groups[entry.key]  # or keys that never come again would pile up
            self._advance()

    # -- callbacks of the event loop: there is no task that could die or be cancelled ----------

    def _advance(self) -> None:
        """Admit requests, start the batch that is due, or set the alarm for the next one."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        loop = self._loop
        while loop is not None:
            self._admit(loop.time())
            if self._running is not None or not self._groups:
                break
            due_s, _, key = min(map(self._due, self._groups.items()))
            if due_s > loop.time():
                self._alarm = loop.call_at(due_s, self._advance)
                break
            batch = self._take(key)
            if batch:
                self._start(batch)
        if not self._pending and self._running is None:
            self._idle.set()

    def _admit(self, now_s: float) -> None:
        """Queue as many of those who wait for a place as there are places, the first first."""
        while self._blocked and self._pending < self._max_pending:
            _, entry = self._blocked.popitem(last=False)
            if not entry.answer.done():
                entry.arrived_s = now_s
                self._groups.setdefault(entry.key, OrderedDict())[entry.number] = entry
                self._pending += 1

    def _due(
        self, item: "tuple[Hashable, OrderedDict[int, _Queued[Request, Answer]]]"
    ) -> tuple[float, int, Hashable]:
        """When a group's batch is due.

        A full one was due when its oldest request came.  So it goes before others, but not for
        ever: a request that has waited for its time and then for that of a batch goes first.
        """
        key, group = item
        oldest = next(iter(group.values()))
        complete = len(group) >= self._max_batch_size or not self._accepting
        wait_s = 0.0 if complete else self._max_wait_s
        return oldest.arrived_s + wait_s, oldest.number, key

    def _take(self, key: Hashable) -> list[_Queued[Request, Answer]]:
        """The oldest of a group that somebody still waits for."""
        group = self._groups[key]
        batch: list[_Queued[Request, Answer]] = []
        while group and len(batch) < self._max_batch_size:
            _, entry = group.popitem(last=False)
            self._pending -= 1
            if not entry.answer.done():
                batch.append(entry)
        if not group:
            del self._groups[key]
        return batch

    def _start(self, batch: list[_Queued[Request, Answer]]) -> None:
        self._running = batch
        requests = [entry.request for entry in batch]
        work = self._worker.submit(lambda: _answers(self._run, requests))
        work.add_done_callback(partial(self._hand_back, batch))

    def _hand_back(
        self, batch: list[_Queued[Request, Answer]], work: "Future[list[Answer | Exception]]"
    ) -> None:
        """Runs in the worker's thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop was closed: nobody is left to be told
                self._loop.call_soon_threadsafe(self._settle, batch, work)

    def _settle(
        self, batch: list[_Queued[Request, Answer]], work: "Future[list[Answer | Exception]]"
    ) -> None:
        """Every caller of the batch gets its own answer, or the batch's exception."""
        self._running = None
        failure = work.exception()
        if failure is not None:
            for entry in batch:
                _fail(entry, failure)
        else:
            for entry, answer in zip(batch, work.result(), strict=True):
                if isinstance(answer, Exception):
                    _fail(entry, answer)
                elif not entry.answer.done():  # its caller may have been cancelled meanwhile
                    entry.answer.set_result(answer)
        self._advance()


def _answers(
    run: Callable[[list[Request]], Iterable[Answer | Exception]], requests: list[Request]
) -> list[Answer | Exception]:
    """Runs in the worker's thread: what *run* computes lazily is computed here as well."""
    expected = len(requests)  # *run* may empty its list
    returned = run(requests)
    try:
        each = None if isinstance(returned, Mapping | str | bytes) else iter(returned)
    except TypeError:  # nothing, a number, a tensor without dimensions
        each = None
    if each is None:
        raise BatchFailedError(
            f"run returned a {type(returned).__name__}: return a list with an answer per request"
        )
    answers = list(each)
    if len(answers) != expected:
        raise BatchFailedError(
            f"run returned {len(answers)} answers to {expected} requests: return one each, in "
            "their order"
        )
    return answers


def _fail(entry: _Queued[Request, Answer], error: BaseException) -> None:
    if not entry.answer.done():
        entry.answer.set_exception(_raisable(error))


def _raisable(error: BaseException) -> Exception:
    """What a caller can be given.

    A future refuses `StopIteration`; a cancellation or an exit of the worker would be taken for
    the caller's own.
    """
    if isinstance(error, Exception) and not isinstance(error, StopIteration):
        return error
    failure = BatchFailedError(f"run raised {type(error).__name__}: {error}")
    failure.__cause__ = error
    return failure
