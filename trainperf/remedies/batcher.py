"""Dynamic batching: requests that arrive one by one go through a model together."""

import asyncio
import math
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


@dataclass(slots=True, eq=False)
class _Queued(Generic[Request, Answer]):
    """A request, and the future that its caller waits for."""

    request: Request
    key: Hashable
    answer: "asyncio.Future[Answer]"
    accepted_s: float = 0.0

    def settle(self, answer: Answer | BaseException) -> None:
        """Give the caller its answer or error, unless it has one or was cancelled."""
        if self.answer.done():
            return
        if isinstance(answer, BaseException):
            self.answer.set_exception(_raisable(answer))
        else:
            self.answer.set_result(answer)


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
        # Ordered sets: the first goes, and any that is cancelled, at the same small cost.
        self._blocked: dict[_Queued[Request, Answer], None] = {}
        self._queue: dict[_Queued[Request, Answer], None] = {}
        self._running: list[_Queued[Request, Answer]] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False
        self._alarm: asyncio.TimerHandle | None = None
        self._advanced = asyncio.Event()
        self._worker = ThreadPoolExecutor(max_workers=1, thread_name_prefix="trainperf-batcher")

    @property
    def pending(self) -> int:
        """Requests whose batch has not started; at most *max_pending*."""
        return len(self._queue)

    async def __aenter__(self) -> Self:
        if self._loop is not None or self._closed:
            raise ConfigError("this batcher was open or closed before: make a new one")
        # The thread starts here: where none can be started, the owner is told and no caller waits.
        self._worker.submit(int)
        self._loop = asyncio.get_running_loop()
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
        loop = asyncio.get_running_loop()
        if self._loop is None or self._closed:
            raise BatcherClosedError(_CLOSED)
        if loop is not self._loop:
            raise ConfigError(
                "submit() from another event loop than the batcher's: use "
                "asyncio.run_coroutine_threadsafe(batcher.submit(request), its_loop)"
            )
        key = None if self._key is None else self._key(request)
        hash(key)  # refused here, before it is queued
        if self.pending >= self._max_pending and not wait:
            raise BatcherFullError(
                f"{self.pending} requests are queued (max_pending): turn this one away, retry "
                "later, or submit(…, wait=True)"
            )
        entry: _Queued[Request, Answer] = _Queued(request, key, loop.create_future())
        self._blocked[entry] = None
        self._advance()
        try:
            return await entry.answer
        finally:
            # It leaves with an answer, or cancelled while it waited.
            self._blocked.pop(entry, None)
            self._queue.pop(entry, None)
            self._advance()

    async def close(self, *, drain: bool = True) -> None:
        """Accept nothing more; return when no accepted request is left.

        Callers that wait for a place are refused.  May be called again, e.g. without *drain* after
        draining took too long.

        Args:
            drain: Whether to run what was accepted.  If not, all callers get `BatcherClosedError`
                at once; a batch that runs is left to its end, which nobody waits for but Python
                when it exits.
        """
        self._closed = True
        refused = [*self._blocked]
        self._blocked.clear()
        if not drain:
            refused += [*self._queue, *self._running]
            self._queue.clear()
        for entry in refused:
            entry.settle(BatcherClosedError(_CLOSED))
        self._advance()
        while drain and (self._queue or self._running):
            self._advanced.clear()
            await self._advanced.wait()
        self._worker.shutdown(wait=False)

    # -- callbacks of the event loop: there is no task that could die or be cancelled ----------

    def _advance(self) -> None:
        """Admit requests, start the batch that is due, or set the alarm for the next one."""
        self._advanced.set()
        if self._alarm is not None:
            self._alarm.cancel()
        while self._blocked and len(self._queue) < self._max_pending:
            entry = next(iter(self._blocked))
            del self._blocked[entry]
            entry.accepted_s = entry.answer.get_loop().time()
            self._queue[entry] = None
        groups: dict[Hashable, list[_Queued[Request, Answer]]] = {}
        for entry in () if self._running else self._queue:
            if not entry.answer.done():
                groups.setdefault(entry.key, []).append(entry)
        if not groups:
            return
        batch, loop = min(groups.values(), key=self._due_s), entry.answer.get_loop()
        if self._due_s(batch) > loop.time():
            self._alarm = loop.call_at(self._due_s(batch), self._advance)
            return
        self._running = batch[: self._max_batch_size]
        for entry in self._running:
            del self._queue[entry]
        requests = [entry.request for entry in self._running]
        work = self._worker.submit(lambda: _answers(self._run, requests))
        work.add_done_callback(partial(self._hand_back, loop))
        self._advance()  # their places are free

    def _due_s(self, group: "list[_Queued[Request, Answer]]") -> float:
        """When a group's batch is due.

        A full one was due when its oldest request came.  So it goes before others, but not for
        ever: a request that has waited for its time and then for that of a batch goes first.
        """
        complete = len(group) >= self._max_batch_size or self._closed
        return group[0].accepted_s + (0.0 if complete else self._max_wait_s)

    def _hand_back(
        self, loop: asyncio.AbstractEventLoop, work: "Future[list[Answer | Exception]]"
    ) -> None:
        """Runs in the worker's thread."""
        with suppress(RuntimeError):  # the loop was closed: nobody is left to be told
            loop.call_soon_threadsafe(self._settle, work)

    def _settle(self, work: "Future[list[Answer | Exception]]") -> None:
        """Every caller of the batch gets its own answer, or the batch's exception."""
        batch, self._running = self._running, []
        failure = work.exception()
        answers = [failure] * len(batch) if failure is not None else work.result()
        for entry, answer in zip(batch, answers, strict=True):
            entry.settle(answer)
        self._advance()


def _answers(
    run: Callable[[list[Request]], Iterable[Answer | Exception]], requests: list[Request]
) -> list[Answer | Exception]:
    """Runs in the worker's thread: what *run* computes lazily is computed here as well."""
    expected = len(requests)  # *run* may empty its list
    returned = run(requests)
    if isinstance(returned, Mapping | str | bytes) or not isinstance(returned, Iterable):
        raise BatchFailedError(
            f"run returned a {type(returned).__name__}: return a list with an answer per request"
        )
    answers = list(returned)
    if len(answers) != expected:
        raise BatchFailedError(
            f"run returned {len(answers)} answers to {expected} requests: return one each, in "
            "their order"
        )
    return answers


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
