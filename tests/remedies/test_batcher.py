"""Dynamic batching: every caller gets its own answer or its own error, whatever happens to others.

No test here reads a clock: waits are an hour or nothing, or the loop's time is planted.
"""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
import torch
from support.frozen import frozen
from support.own_thread import in_own_thread
from support.planted_loop import PlantedLoop, turns
from torch.nn.utils.rnn import pad_sequence

from trainperf.core.errors import ConfigError
from trainperf.remedies import (
    BatcherClosedError,
    BatcherFullError,
    BatchFailedError,
    DynamicBatcher,
)


__all__ = ["frozen"]


T = TypeVar("T")
HOUR_S = 3600.0


async def bounded(scenario: Coroutine[Any, Any, T]) -> T:
    """It hangs for two minutes at most."""
    return await asyncio.wait_for(scenario, 120)


def run(scenario: Coroutine[Any, Any, T], loop: asyncio.AbstractEventLoop | None = None) -> T:
    """A scenario to its end, in a loop of its own; one that hangs fails."""
    loop = loop or asyncio.new_event_loop()
    unhandled: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: unhandled.append(context))
    try:
        result = in_own_thread(lambda: loop.run_until_complete(bounded(scenario)))
        gc.collect()  # an exception that nobody has looked at is complained of when it is freed
        assert unhandled == []
        return result
    finally:
        loop.close()


class Doubling:
    """A model that doubles numbers and notes its batches; held, it waits until it is let go."""

    def __init__(self, *, held: bool = False) -> None:
        self.batches: list[list[int]] = []
        self._gate = threading.Semaphore(0) if held else None

    def __call__(self, requests: list[int]) -> list[int]:
        """Twice each; of the number 41 it fails."""
        self.batches.append(list(requests))
        if self._gate is not None:
            assert self._gate.acquire(timeout=60)
        if 41 in requests:
            raise ValueError(requests)
        return [2 * request for request in requests]

    def let_go(self, batches: int = 1) -> None:
        """Let so many batches end."""
        assert self._gate is not None
        for _ in range(batches):
            self._gate.release()

    async def has_begun(self, batches: int) -> None:
        """Return when so many batches have begun."""
        await until(lambda: len(self.batches) >= batches)


async def until(holds: Callable[[], bool]) -> None:
    """Let the loop turn until something holds."""
    while not holds():  # noqa: ASYNC110 some of it happens in the worker's thread
        await asyncio.sleep(0)


def submitted(batcher: "DynamicBatcher[int, int]", *requests: int) -> "list[asyncio.Task[int]]":
    """Callers that wait for their answers."""
    return [asyncio.ensure_future(batcher.submit(request)) for request in requests]


async def outcomes(callers: "list[asyncio.Task[int]]") -> list[int | BaseException]:
    """What each caller got."""
    return await asyncio.gather(*callers, return_exceptions=True)


# -- stories ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What happens to a batcher of a doubling model, and what comes of it."""

    play: str
    """Actions of `Scene`, with their numbers."""
    answers: list[Any]
    """Of each caller: an answer, the type of an error, or `...` for either."""
    batches: list[list[int]] | None = None
    held: bool = False
    """Whether a batch ends only when it is let go."""
    options: dict[str, Any] = field(default_factory=dict)


@dataclass
class Scene:
    """A story as it goes on."""

    batcher: "DynamicBatcher[int, int]"
    model: Doubling
    loop: PlantedLoop
    callers: "list[asyncio.Task[int]]" = field(default_factory=list)
    closing: "asyncio.Task[None] | None" = None

    async def play(self, actions: str) -> None:
        """One action after the other."""
        for action in actions.split(", "):
            verb, *numbers = action.split()
            await getattr(self, verb)(*map(int, numbers))

    async def submit(self, *requests: int) -> None:
        """Callers come."""
        self.callers += submitted(self.batcher, *requests)

    async def turn(self) -> None:
        """Everything that is ready runs."""
        await turns(5)

    async def pass_ms(self, milliseconds: int) -> None:
        """Time passes."""
        self.loop.now_s += milliseconds / 1e3

    async def begun(self, batches: int) -> None:
        """So many batches have begun."""
        await self.model.has_begun(batches)

    async def pending(self, requests: int) -> None:
        """So many are queued."""
        assert self.batcher.pending == requests

    async def let(self, batches: int) -> None:
        """So many batches may end."""
        self.model.let_go(batches)

    async def cancel(self, caller: int) -> None:
        """A caller leaves."""
        self.callers[caller].cancel()

    async def cancel_after(self, caller: int, other: int) -> None:
        """A caller leaves in the turn in which another one wakes up to its answer."""
        self.callers[other].add_done_callback(lambda _: self.callers[caller].cancel())

    async def told(self, caller: int) -> None:
        """A caller has its answer or error."""
        assert self.callers[caller].done()

    async def late(self, request: int) -> None:
        """A caller has no patience."""
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(self.batcher.submit(request), 0)

    async def full(self, request: int) -> None:
        """A caller that does not wait is turned away."""
        with pytest.raises(BatcherFullError, match="2 requests are queued"):
            await self.batcher.submit(request, wait=False)

    async def closed(self, request: int) -> None:
        """A caller comes too late."""
        with pytest.raises(BatcherClosedError):
            await self.batcher.submit(request)

    async def drain(self) -> None:
        """It is about to be closed, and waits for what was accepted."""
        self.closing = asyncio.ensure_future(self.batcher.close())
        await turns(5)
        assert not self.closing.done()

    async def drained(self) -> None:
        """It is closed."""
        assert self.closing is not None
        await self.closing

    async def close(self) -> None:
        """Nobody waits for the draining any more: it is closed without."""
        assert self.closing is not None
        self.closing.cancel()
        await turns(5)
        assert self.batcher.pending == 2
        await self.batcher.close(drain=False)


def by_parity(request: int) -> int:
    """A key."""
    return request % 2


def brittle(request: int) -> Any:
    """A key that fails of 0, and of 1 and 5 has no hash."""
    return [] if request in (1, 5) else 1 // request


STORIES = {
    # A full batch does not wait; the last, shorter one starts when its time has come.
    "requests that come together share a batch and each gets its own answer": Story(
        play="submit 0 1 2 3 4 5 6 7 8 9, begun 2, pending 2, pass_ms 2000",
        answers=[0, 2, 4, 6, 8, 10, 12, 14, 16, 18],
        batches=[[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]],
        options={"max_batch_size": 4},
    ),
    # Not before, and not when another one that came later has.
    "a lone request starts when it has waited for the given time": Story(
        play="submit 1, turn, pass_ms 1500, submit 2, turn, pending 2, pass_ms 500, begun 1,"
        " pending 0",
        answers=[2, 4],
        batches=[[1, 2]],
        options={"max_batch_size": 4},
    ),
    # The alarm of the first request and the last one that fills the batch come together.
    "a time-out in the moment in which a batch is full starts it once": Story(
        play="submit 1, turn, submit 2 3, pass_ms 2000, turn, pending 1, pass_ms 2000",
        answers=[2, 4, 6],
        batches=[[1, 2], [3]],
    ),
    # A model on the event loop's own thread would never be let go here.
    "while a batch runs the loop is alive and the next batch gathers": Story(
        play="submit 1, begun 1, submit 2 3 4, turn, pending 3, let 2",
        answers=[2, 4, 6, 8],
        batches=[[1], [2, 3, 4]],
        held=True,
        options={"max_batch_size": 8, "max_wait_s": 0.0},
    ),
    # What has waited for its time goes before a full batch of requests that came later.
    "a key that is always full does not starve another": Story(
        play="submit 0 2, begun 1, submit 1, turn, pass_ms 1000, submit 4 6, turn, pass_ms 1500,"
        " submit 8 10, turn, let 4",
        answers=[0, 4, 2, 8, 12, 16, 20],
        batches=[[0, 2], [4, 6], [1], [8, 10]],
        held=True,
        options={"key": by_parity},
    ),
    # And takes no place in the queue.
    "a key that fails or has no hash costs its own caller only": Story(
        play="submit 0 1, turn, pending 0, submit 2",
        answers=[ZeroDivisionError, TypeError, 4],
        options={"max_batch_size": 1, "max_pending": 1, "key": brittle},
    ),
    # Later it would fail in the middle of another caller's batch.
    "a key without a hash is refused before its request waits for a place": Story(
        play="submit 2, begun 1, submit 3 5 4, turn, told 2, let 3",
        answers=[4, 6, TypeError, 8],
        held=True,
        options={"max_batch_size": 1, "max_pending": 1, "key": brittle},
    ),
    # Those around it are answered.
    "a request whose caller has left is not computed and gives its place back": Story(
        play="submit 0 1 2, begun 1, submit 3 4 5, turn, cancel 4, late 9, turn, pending 2,"
        " submit 6, let 2",
        answers=[0, 2, 4, 6, asyncio.CancelledError, 10, 12],
        batches=[[0, 1, 2], [3, 5, 6]],
        held=True,
        options={"max_batch_size": 3},
    ),
    # An empty batch never reaches the model, and the batcher still works.
    "callers that leave together in the moment their batch is due leave nothing to run": Story(
        play="submit 1 2, turn, pass_ms 2000, cancel 0, cancel 1, turn, pending 0, submit 3, turn,"
        " pass_ms 2000",
        answers=[asyncio.CancelledError, asyncio.CancelledError, 6],
        batches=[[3]],
        options={"max_batch_size": 4},
    ),
    # Its answer is dropped; also if it leaves when that is already there.
    "a caller that leaves while its batch runs costs the others nothing": Story(
        play="submit 0 1 2, begun 1, cancel 0, cancel_after 1 2, let 1",
        answers=[asyncio.CancelledError, ..., 4],
        held=True,
        options={"max_batch_size": 3},
    ),
    # The batch of the number 41 fails.
    "a caller that leaves while its batch runs costs the others nothing but its error": Story(
        play="submit 41 1 2, begun 1, cancel 0, cancel_after 1 2, let 1",
        answers=[asyncio.CancelledError, ..., ValueError],
        held=True,
        options={"max_batch_size": 3},
    ),
    # What is queued never exceeds the limit; running requests do not count.
    "a full queue turns away those who do not wait and admits the others in order": Story(
        play="submit 0 1, begun 1, submit 2 3 4 5 6 7, turn, pending 2, full 8, let 1, begun 2,"
        " turn, pending 2, let 1, begun 3, turn, pending 2, let 1, begun 4, turn, pending 0, let 1",
        answers=[0, 2, 4, 6, 8, 10, 12, 14],
        batches=[[0, 1], [2, 3], [4, 5], [6, 7]],
        held=True,
        options={"max_pending": 2},
    ),
    # A place that is lost would shrink the queue for ever.  The third waits for a place, gets that
    # of the second when the first is answered, and is cancelled in the next turn of the loop.
    "a place granted to a caller that leaves in the same moment goes to the next": Story(
        play="submit 0, begun 1, submit 1 2 3 4, turn, cancel 3, turn, cancel_after 2 0, let 1,"
        " begun 2, turn, let 2",
        answers=[0, 2, asyncio.CancelledError, asyncio.CancelledError, 8],
        batches=[[0], [1], [4]],
        held=True,
        options={"max_batch_size": 1, "max_pending": 1},
    ),
    # Those who waited for a place are told, as is whoever comes later.
    "draining answers what was accepted and refuses the rest": Story(
        play="submit 0 1, begun 1, submit 2 3 4 5, turn, drain, closed 6, let 3, drained",
        answers=[0, 2, 4, 6, 8, BatcherClosedError],
        held=True,
        options={"max_pending": 3},
    ),
    # Draining may take too long: then the same batcher is closed without.
    "a close without draining tells everybody at once also while a model hangs": Story(
        play="submit 0 1, begun 1, submit 2 3 4, turn, drain, close, pending 0, turn, told 0,"
        " told 4, let 1",
        answers=[BatcherClosedError] * 5,
        batches=[[0, 1]],
        held=True,
        options={"max_pending": 2},
    ),
}


@pytest.mark.parametrize("story", STORIES.values(), ids=STORIES)
def test_every_caller_gets_its_own_answer_or_its_own_error(story: Story) -> None:
    """With batches of two that wait for two seconds, unless the story says otherwise."""
    model, loop = Doubling(held=story.held), PlantedLoop()
    options = {"max_batch_size": 2, "max_wait_s": 2.0, **story.options}

    async def scenario() -> list[int | BaseException]:
        async with DynamicBatcher(model, **options) as batcher:
            scene = Scene(batcher, model, loop)
            await scene.play(story.play)
            return await outcomes(scene.callers)

    given = [type(each) if isinstance(each, Exception) else each for each in run(scenario(), loop)]
    given = [type(each) if isinstance(each, asyncio.CancelledError) else each for each in given]

    pairs = zip(given, story.answers, strict=True)
    assert [answer for answer, expected in pairs if expected not in (answer, ...)] == []
    assert story.batches in (None, model.batches)


def test_what_is_queued_starts_when_the_batcher_drains() -> None:
    """A shorter batch too, long before its time."""
    model = Doubling()

    async def scenario() -> list[int | BaseException]:
        async with DynamicBatcher(model, max_batch_size=4, max_wait_s=HOUR_S) as batcher:
            callers = submitted(batcher, 8, 9)
            await turns(5)
        return await outcomes(callers)

    assert run(scenario()) == [16, 18]


def test_requests_of_unlike_keys_never_share_a_batch() -> None:
    """And a key that never comes again leaves nothing behind."""

    class Key:
        """A key that can be watched."""

    keys = [Key(), Key()]
    gone = [weakref.ref(key) for key in keys]
    model = Doubling()

    async def scenario() -> list[int | BaseException]:
        batcher = DynamicBatcher(
            model, max_batch_size=2, max_wait_s=HOUR_S, key=lambda request: keys[request % 2]
        )
        async with batcher:
            callers = submitted(batcher, 0, 1, 2, 3, 4)
            await until(lambda: len(model.batches) == 2)
            callers.pop().cancel()
            await turns(5)
            keys.clear()
            answers = await outcomes(callers)
            gc.collect()
            assert [reference() for reference in gone] == [None, None]
            return answers

    assert run(scenario()) == [0, 2, 4, 6]
    assert sorted(model.batches) == [[0, 2], [1, 3]]


def test_requests_of_unlike_lengths_are_padded_by_the_model_function() -> None:
    """Each caller gets what it would have got alone."""
    torch.manual_seed(0)
    embedding = torch.nn.Embedding(50, 8, padding_idx=0)

    def mean_of(requests: list[torch.Tensor]) -> torch.Tensor:
        with torch.inference_mode():
            tokens = pad_sequence(requests, batch_first=True)
            mask = (tokens != 0).unsqueeze(-1)
            return (embedding(tokens) * mask).sum(1) / mask.sum(1)

    requests = [torch.arange(1, length) for length in (3, 9, 5, 2)]

    async def scenario() -> list[torch.Tensor]:
        async with DynamicBatcher(mean_of, max_batch_size=4, max_wait_s=HOUR_S) as batcher:
            return await asyncio.gather(*map(batcher.submit, requests))

    together = run(scenario())

    for request, answer in zip(requests, together, strict=True):
        assert not answer.requires_grad
        torch.testing.assert_close(answer, mean_of([request])[0])


# -- errors ----------------------------------------------------------------------------------


def test_an_answer_that_is_an_exception_is_raised_for_its_own_caller_alone() -> None:
    """One bad request does not cost the others their answers."""

    def careful(requests: list[int]) -> list[int | Exception]:
        return [request if request != 1 else ValueError("one") for request in requests]

    async def scenario() -> list[int | BaseException]:
        async with DynamicBatcher(careful, max_batch_size=3, max_wait_s=HOUR_S) as batcher:
            return await outcomes(submitted(batcher, 0, 1, 2))

    first, second, third = run(scenario())

    assert (first, third) == (0, 2)
    assert isinstance(second, ValueError)


def raising(error: BaseException) -> Callable[[list[int]], Any]:
    """A model function that raises."""

    def run(_: list[int]) -> None:
        raise error

    return run


def lazily(requests: list[int]) -> Iterator[int]:
    """Fails when its answers are taken."""
    yield requests[0]
    raise KeyError(requests[-1])


@pytest.mark.parametrize(
    ("faulty", "error", "says"),
    [
        (lambda requests: requests[1:], BatchFailedError, "1 answers to 2 requests"),
        (lambda requests: requests.clear() or [], BatchFailedError, "0 answers to 2 requests"),
        (dict.fromkeys, BatchFailedError, "returned a dict"),
        (raising(StopIteration()), BatchFailedError, "run raised StopIteration"),
        # What would end the event loop, and what a caller would take for its own cancellation.
        (raising(SystemExit(2)), BatchFailedError, "run raised SystemExit: 2"),
        (raising(asyncio.CancelledError(2)), BatchFailedError, "run raised CancelledError: 2"),
        (lazily, KeyError, "2"),
        (raising(ValueError([1, 2])), ValueError, "[1, 2]"),
        (lambda requests: None, BatchFailedError, "NoneType"),
        (lambda requests: 3, BatchFailedError, "int"),
        (lambda requests: torch.tensor(1.0), TypeError, "0-d tensor"),
    ],
)
def test_whatever_a_model_function_does_its_callers_are_told_and_the_next_batch_runs(
    faulty: Callable[[list[int]], Any], error: type[Exception], says: str
) -> None:
    """Nobody waits for an answer that will never come; the batch before is answered."""

    def model(requests: list[int]) -> Any:
        return faulty(requests) if 1 in requests else requests

    async def scenario() -> list[int | BaseException]:
        async with DynamicBatcher(model, max_batch_size=2, max_wait_s=HOUR_S) as batcher:
            return await outcomes(submitted(batcher, 5, 6, 1, 2, 3, 4))

    fifth, sixth, first, second, *others = run(scenario())

    assert [fifth, sixth, *others] == [5, 6, 3, 4]
    assert first is second or error is BatchFailedError
    for told in (first, second):
        assert isinstance(told, error)
        assert says in str(told)


def test_an_exception_for_a_caller_that_is_cancelled_in_the_same_turn_is_not_complained_of() -> (
    None
):
    """An exception that nobody has looked at is logged; this caller had a right to leave."""

    async def scenario() -> list[int | BaseException]:
        async with DynamicBatcher(
            raising(ValueError()), max_batch_size=2, max_wait_s=HOUR_S
        ) as batcher:
            later: list[asyncio.Task[int]] = []

            async def first() -> int:
                try:
                    return await batcher.submit(0)
                finally:
                    later[0].cancel()  # its exception is set, and it has not woken up to it

            callers = [asyncio.ensure_future(first())]
            later += submitted(batcher, 1)
            return await outcomes([*callers, *later])

    first, second = run(scenario())

    assert isinstance(first, ValueError)
    assert isinstance(second, asyncio.CancelledError)


# -- the end -----------------------------------------------------------------------------------


def join_workers() -> None:
    """No thread of a batcher's is left."""
    for thread in threading.enumerate():
        if thread.name.startswith("trainperf-batcher"):
            thread.join(60)
            assert not thread.is_alive()


def test_an_error_in_the_body_of_its_owner_tells_all_callers_and_leaves_no_thread() -> None:
    """The owner's own error goes on."""
    model = Doubling(held=True)
    callers: list[asyncio.Task[int]] = []

    async def scenario() -> None:
        async with DynamicBatcher(model, max_batch_size=2, max_wait_s=HOUR_S) as batcher:
            callers.extend(submitted(batcher, 0, 1, 2))
            await model.has_begun(1)
            raise LookupError

    async def guarded() -> list[int | BaseException]:
        with pytest.raises(LookupError):
            await scenario()
        return await outcomes(callers)

    assert [type(each) for each in run(guarded())] == [BatcherClosedError] * 3
    model.let_go()
    join_workers()


def test_a_loop_that_ends_while_a_batch_runs_is_not_called_any_more(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """The worker finds nobody to tell, and says nothing."""
    model = Doubling(held=True)

    async def scenario() -> None:
        batcher = await DynamicBatcher(model, max_batch_size=1).__aenter__()
        caller = submitted(batcher, 0)[0]
        await model.has_begun(1)
        caller.cancel()
        with suppress(asyncio.CancelledError):
            await caller

    run(scenario())
    model.let_go()
    gc.collect()
    join_workers()

    assert caplog.records == []


def test_a_batcher_that_is_not_open_or_belongs_to_another_loop_says_so() -> None:
    """Waiting in one loop for what is set in another may never end."""
    batcher = DynamicBatcher(Doubling())

    async def submit() -> int:
        return await batcher.submit(1)

    async def elsewhere() -> None:
        async with batcher:
            with pytest.raises(ConfigError, match="run_coroutine_threadsafe"):
                await asyncio.to_thread(lambda: run(submit()))

    async def again() -> None:
        async with batcher:
            pass

    with pytest.raises(BatcherClosedError, match="async with"):
        run(submit())
    run(elsewhere())
    with pytest.raises(BatcherClosedError):
        run(submit())
    with pytest.raises(ConfigError, match="make a new one"):
        run(again())
    early = DynamicBatcher(Doubling())  # its thread is gone before it was open
    run(early.close())
    with pytest.raises(ConfigError, match="make a new one"):
        run(early.__aenter__())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"max_batch_size": 0}, "max_batch_size=0"),
        ({"max_wait_s": -1.0}, "max_wait_s=-1.0"),
        ({"max_wait_s": float("inf")}, "must be finite"),
        ({"max_batch_size": 8, "max_pending": 7}, "no batch would ever be full"),
    ],
)
def test_nonsense_is_refused(options: dict[str, Any], says: str) -> None:
    """At construction, with the value."""
    with pytest.raises(ConfigError, match=says):
        DynamicBatcher(Doubling(), **options)
