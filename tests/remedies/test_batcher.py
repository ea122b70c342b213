"""Dynamic batching: every caller gets its own answer or its own error, whatever happens to others.

No test here reads a clock: waits are an hour or nothing, or the loop's time is planted.
"""

import asyncio
import gc
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from contextlib import suppress
from typing import Any, TypeVar

import pytest
import torch
from support.own_thread import in_own_thread
from torch.nn.utils.rnn import pad_sequence

from trainperf.core.errors import ConfigError
from trainperf.remedies import (
    BatcherClosedError,
    BatcherFullError,
    BatchFailedError,
    DynamicBatcher,
)


T = TypeVar("T")
HOUR_S = 3600.0


class PlantedLoop(asyncio.SelectorEventLoop):
    """An event loop whose time stands still until a test moves it."""

    now_s = 100.0

    def time(self) -> float:
        """The planted time."""
        return self.now_s


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
        """Twice each."""
        self.batches.append(list(requests))
        if self._gate is not None:
            assert self._gate.acquire(timeout=60)
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


async def turns(number: int = 5) -> None:
    """Let the loop turn a few times: everything that is ready runs."""
    for _ in range(number):
        await asyncio.sleep(0)


def submitted(batcher: "DynamicBatcher[int, int]", *requests: int) -> "list[asyncio.Task[int]]":
    """Callers that wait for their answers."""
    return [asyncio.ensure_future(batcher.submit(request)) for request in requests]


async def outcomes(callers: "list[asyncio.Task[int]]") -> list[int | BaseException]:
    """What each caller got."""
    return await asyncio.gather(*callers, return_exceptions=True)


# -- batches ---------------------------------------------------------------------------------


def test_requests_that_come_together_share_a_batch_and_each_gets_its_own_answer() -> None:
    """A full batch does not wait; the last, shorter one starts when the batcher drains."""
    model = Doubling()

    async def scenario() -> list[int | BaseException]:
        async with DynamicBatcher(model, max_batch_size=4, max_wait_s=HOUR_S) as batcher:
            callers = submitted(batcher, *range(10))
            await turns()
        return await outcomes(callers)

    assert run(scenario()) == [2 * number for number in range(10)]
    assert model.batches == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]


def test_a_lone_request_starts_when_it_has_waited_for_the_given_time() -> None:
    """Not before, and not when another one that came later has."""
    model, loop = Doubling(), PlantedLoop()

    async def scenario() -> list[int | BaseException]:
        async with DynamicBatcher(model, max_batch_size=4, max_wait_s=2.0) as batcher:
            callers = submitted(batcher, 1)
            await turns()
            loop.now_s += 1.5
            callers += submitted(batcher, 2)
            await turns()
            assert batcher.pending == 2
            loop.now_s += 0.5
            await model.has_begun(1)
            assert batcher.pending == 0
            return await outcomes(callers)

    assert run(scenario(), loop) == [2, 4]
    assert model.batches == [[1, 2]]


def test_a_time_out_in_the_moment_in_which_a_batch_is_full_starts_it_once() -> None:
    """The alarm of the first request and the last one that fills the batch come together."""
    model, loop = Doubling(), PlantedLoop()

    async def scenario() -> list[int | BaseException]:
        async with DynamicBatcher(model, max_batch_size=2, max_wait_s=2.0) as batcher:
            callers = submitted(batcher, 1)
            await turns()
            callers += submitted(batcher, 2, 3)
            loop.now_s += 2.0
            await turns()
            assert batcher.pending == 1
            loop.now_s += 2.0
            return await outcomes(callers)

    assert run(scenario(), loop) == [2, 4, 6]
    assert model.batches == [[1, 2], [3]]


def test_while_a_batch_runs_the_loop_is_alive_and_the_next_batch_gathers() -> None:
    """A model on the event loop's own thread would never be let go here."""
    model = Doubling(held=True)

    async def scenario() -> list[int | BaseException]:
        async with DynamicBatcher(model, max_batch_size=8, max_wait_s=0.0) as batcher:
            callers = submitted(batcher, 1)
            await model.has_begun(1)
            callers += submitted(batcher, 2, 3, 4)
            await turns()
            assert batcher.pending == 3
            model.let_go(2)
            return await outcomes(callers)

    assert run(scenario()) == [2, 4, 6, 8]
    assert model.batches == [[1], [2, 3, 4]]


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
            await turns()
            keys.clear()
            answers = await outcomes(callers)
            gc.collect()
            assert [reference() for reference in gone] == [None, None]
            return answers

    assert run(scenario()) == [0, 2, 4, 6]
    assert sorted(model.batches) == [[0, 2], [1, 3]]


def test_a_key_that_is_always_full_does_not_starve_another() -> None:
    """What has waited for its time goes before a full batch of requests that came later."""
    model, loop = Doubling(held=True), PlantedLoop()

    async def scenario() -> None:
        batcher = DynamicBatcher(
            model, max_batch_size=2, max_wait_s=1.0, key=lambda request: request % 2
        )
        async with batcher:
            callers = submitted(batcher, 0, 2)
            await model.has_begun(1)
            callers += submitted(batcher, 1)
            await turns()
            loop.now_s += 0.5
            callers += submitted(batcher, 4, 6)
            await turns()
            loop.now_s += 1.0
            callers += submitted(batcher, 8, 10)
            await turns()
            model.let_go(4)
            await outcomes(callers)

    run(scenario(), loop)

    assert model.batches == [[0, 2], [4, 6], [1], [8, 10]]


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


def test_an_exception_reaches_the_callers_of_its_own_batch_and_no_others() -> None:
    """The batches before and after are answered."""

    def fails(requests: list[int]) -> list[int]:
        if 2 in requests:
            raise ValueError("two")
        return requests

    async def scenario() -> list[int | BaseException]:
        async with DynamicBatcher(fails, max_batch_size=2, max_wait_s=HOUR_S) as batcher:
            return await outcomes(submitted(batcher, 0, 1, 2, 3, 4, 5))

    first, second, third, fourth, *others = run(scenario())

    assert [first, second, *others] == [0, 1, 4, 5]
    assert isinstance(third, ValueError)
    assert third is fourth


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


def too_few(requests: list[int]) -> list[int]:
    """Forgets one."""
    return requests[1:]


def emptied(requests: list[int]) -> list[int]:
    """Takes the requests out of the list that it was given, and answers none."""
    requests.clear()
    return []


def mapping(requests: list[int]) -> dict[int, int]:
    """As many keys as requests."""
    return {request: request for request in requests}


def stops(requests: list[int]) -> list[int]:
    """Raises what a future refuses."""
    raise StopIteration(requests)


def lazily(requests: list[int]) -> Iterator[int]:
    """Fails when its answers are taken."""
    yield requests[0]
    raise KeyError(requests[-1])


def leaves(requests: list[int]) -> list[int]:
    """Raises what would end the event loop."""
    raise SystemExit(len(requests))


def cancels(requests: list[int]) -> list[int]:
    """Raises what a caller would take for its own cancellation."""
    raise asyncio.CancelledError(len(requests))


@pytest.mark.parametrize(
    ("faulty", "error", "says"),
    [
        (too_few, BatchFailedError, "1 answers to 2 requests"),
        (emptied, BatchFailedError, "0 answers to 2 requests"),
        (mapping, BatchFailedError, "returned a dict"),
        (stops, BatchFailedError, "run raised StopIteration"),
        (leaves, BatchFailedError, "run raised SystemExit: 2"),
        (cancels, BatchFailedError, "run raised CancelledError: 2"),
        (lazily, KeyError, "2"),
    ],
)
def test_whatever_a_model_function_does_its_callers_are_told_and_the_next_batch_runs(
    faulty: Callable[[list[int]], Any], error: type[Exception], says: str
) -> None:
    """Nobody waits for an answer that will never come."""

    def model(requests: list[int]) -> Any:
        return faulty(requests) if 1 in requests else requests

    async def scenario() -> list[int | BaseException]:
        async with DynamicBatcher(model, max_batch_size=2, max_wait_s=HOUR_S) as batcher:
            return await outcomes(submitted(batcher, 1, 2, 3, 4))

    first, second, *others = run(scenario())

    assert others == [3, 4]
    for told in (first, second):
        assert isinstance(told, error)
        assert says in str(told)


def test_a_key_that_fails_or_has_no_hash_costs_its_own_caller_only() -> None:
    """And takes no place in the queue."""

    def key(request: int) -> Any:
        return [] if request == 1 else 1 // request

    async def scenario() -> list[int | BaseException]:
        batcher = DynamicBatcher(Doubling(), max_batch_size=1, max_pending=1, key=key)
        async with batcher:
            failed = await outcomes(submitted(batcher, 0, 1))
            assert batcher.pending == 0
            return failed + await outcomes(submitted(batcher, 2))

    first, second, third = run(scenario())

    assert isinstance(first, ZeroDivisionError)
    assert isinstance(second, TypeError)
    assert third == 4


def test_a_key_without_a_hash_is_refused_before_its_request_waits_for_a_place() -> None:
    """Later it would fail in the middle of another caller's batch."""
    model = Doubling(held=True)

    async def scenario() -> list[int | BaseException]:
        batcher = DynamicBatcher(
            model,
            max_batch_size=1,
            max_pending=1,
            key=lambda request: [] if request == 2 else None,  # type: ignore[arg-type,return-value]
        )
        async with batcher:
            callers = submitted(batcher, 0)
            await model.has_begun(1)
            callers += submitted(batcher, 1, 2, 3)
            await turns()
            assert isinstance(callers[2].exception(), TypeError)
            model.let_go(3)
            return await outcomes(callers)

    first, second, refused, fourth = run(scenario())

    assert (first, second, fourth) == (0, 2, 6)
    assert isinstance(refused, TypeError)


# -- cancellation and time-outs ----------------------------------------------------------------


def test_a_request_whose_caller_has_left_is_not_computed_and_gives_its_place_back() -> None:
    """Those around it are answered."""
    model = Doubling(held=True)

    async def scenario() -> list[int | BaseException]:
        async with DynamicBatcher(model, max_batch_size=3, max_wait_s=HOUR_S) as batcher:
            callers = submitted(batcher, 0, 1, 2)
            await model.has_begun(1)
            callers += submitted(batcher, 3, 4, 5)
            await turns()
            callers[4].cancel()
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(batcher.submit(9), 0)
            await turns()
            assert batcher.pending == 2
            callers += submitted(batcher, 6)
            model.let_go(2)
            return await outcomes(callers)

    answers = run(scenario())

    assert isinstance(answers.pop(4), asyncio.CancelledError)
    assert answers == [0, 2, 4, 6, 10, 12]
    assert model.batches == [[0, 1, 2], [3, 5, 6]]


def test_callers_that_leave_together_in_the_moment_their_batch_is_due_leave_nothing_to_run() -> (
    None
):
    """An empty batch never reaches the model, and the batcher still works."""
    model, loop = Doubling(), PlantedLoop()

    async def scenario() -> list[int | BaseException]:
        async with DynamicBatcher(model, max_batch_size=4, max_wait_s=1.0) as batcher:
            callers = submitted(batcher, 1, 2)
            await turns()
            loop.now_s += 1.0
            for caller in callers:
                caller.cancel()
            await turns()
            assert batcher.pending == 0
            callers += submitted(batcher, 3)
            await turns()
            loop.now_s += 1.0
            return await outcomes(callers)

    *cancelled, answer = run(scenario(), loop)

    assert [type(each) for each in cancelled] == [asyncio.CancelledError] * 2
    assert answer == 6
    assert model.batches == [[3]]


@pytest.mark.parametrize("fails", [False, True])
def test_a_caller_that_leaves_while_its_batch_runs_costs_the_others_nothing(*, fails: bool) -> None:
    """Its answer is dropped; also if it leaves when that is already there."""
    gate = threading.Semaphore(0)
    begun = threading.Event()

    def model(requests: list[int]) -> list[int]:
        begun.set()
        assert gate.acquire(timeout=60)
        if fails:
            raise ValueError(requests)
        return requests

    async def scenario() -> list[int | BaseException]:
        async with DynamicBatcher(model, max_batch_size=3, max_wait_s=HOUR_S) as batcher:
            callers = submitted(batcher, 0, 1, 2)
            await until(begun.is_set)
            callers[0].cancel()
            # In the turn in which the last caller wakes up to its answer, the second is cancelled.
            callers[2].add_done_callback(lambda _: callers[1].cancel())
            gate.release()
            return await outcomes(callers)

    first, _, third = run(scenario())

    assert isinstance(first, asyncio.CancelledError)
    assert isinstance(third, ValueError) if fails else third == 2


def test_an_exception_for_a_caller_that_is_cancelled_in_the_same_turn_is_not_complained_of() -> (
    None
):
    """An exception that nobody has looked at is logged; this caller had a right to leave."""

    def fails(requests: list[int]) -> list[int]:
        raise ValueError(requests)

    async def scenario() -> list[int | BaseException]:
        async with DynamicBatcher(fails, max_batch_size=2, max_wait_s=HOUR_S) as batcher:
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


# -- back-pressure -----------------------------------------------------------------------------


def test_a_full_queue_turns_away_those_who_do_not_wait_and_admits_the_others_in_order() -> None:
    """What is queued never exceeds the limit; running requests do not count."""
    model = Doubling(held=True)

    async def scenario() -> list[int | BaseException]:
        async with DynamicBatcher(
            model, max_batch_size=2, max_wait_s=HOUR_S, max_pending=2
        ) as batcher:
            callers = submitted(batcher, 0, 1)
            await model.has_begun(1)
            callers += submitted(batcher, 2, 3, 4, 5, 6, 7)
            await turns()
            assert batcher.pending == 2
            with pytest.raises(BatcherFullError, match="2 requests are queued"):
                await batcher.submit(8, wait=False)
            for batch in range(2, 5):
                model.let_go()
                await model.has_begun(batch)
                await turns()
                assert batcher.pending <= 2
            model.let_go()
            return await outcomes(callers)

    assert run(scenario()) == [2 * number for number in range(8)]
    assert model.batches == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_a_place_granted_to_a_caller_that_leaves_in_the_same_moment_goes_to_the_next() -> None:
    """A place that is lost would shrink the queue for ever."""
    model = Doubling(held=True)

    async def scenario() -> list[int | BaseException]:
        async with DynamicBatcher(
            model, max_batch_size=1, max_wait_s=HOUR_S, max_pending=1
        ) as batcher:
            callers = submitted(batcher, 0)
            await model.has_begun(1)
            callers += submitted(batcher, 1, 2, 3, 4)
            await turns()
            callers[3].cancel()  # it waits for a place
            await turns()
            # When the first is answered the second starts, its place goes to the third, and the
            # third is cancelled in the next turn of the loop.
            callers[0].add_done_callback(lambda _: callers[2].cancel())
            model.let_go()
            await model.has_begun(2)
            await turns()
            model.let_go(2)
            return await outcomes(callers)

    first, second, third, fourth, fifth = run(scenario())

    assert (first, second, fifth) == (0, 2, 8)
    assert isinstance(third, asyncio.CancelledError)
    assert isinstance(fourth, asyncio.CancelledError)
    assert model.batches == [[0], [1], [4]]


# -- the end -----------------------------------------------------------------------------------


def test_draining_answers_what_was_accepted_and_refuses_the_rest() -> None:
    """Those who waited for a place are told, as is whoever comes later."""
    model = Doubling(held=True)

    async def scenario() -> list[int | BaseException]:
        batcher = DynamicBatcher(model, max_batch_size=2, max_wait_s=HOUR_S, max_pending=3)
        async with batcher:
            callers = submitted(batcher, 0, 1)
            await model.has_begun(1)
            callers += submitted(batcher, 2, 3, 4, 5)
            await turns()
            closing = asyncio.ensure_future(batcher.close())
            await turns()
            with pytest.raises(BatcherClosedError):
                await batcher.submit(6)
            assert not closing.done()
            model.let_go(3)
            await closing
            return await outcomes(callers)

    *answers, refused = run(scenario())

    assert answers == [0, 2, 4, 6, 8]
    assert isinstance(refused, BatcherClosedError)


def test_a_close_without_draining_tells_everybody_at_once_also_while_a_model_hangs() -> None:
    """Draining may take too long: then the same batcher is closed without."""
    model = Doubling(held=True)

    async def scenario() -> list[int | BaseException]:
        batcher = DynamicBatcher(model, max_batch_size=2, max_wait_s=HOUR_S, max_pending=2)
        async with batcher:
            callers = submitted(batcher, 0, 1)
            await model.has_begun(1)
            callers += submitted(batcher, 2, 3, 4)
            await turns()
            draining = asyncio.ensure_future(batcher.close())
            await turns()
            draining.cancel()
            await turns()
            assert batcher.pending == 2
            await batcher.close(drain=False)
            assert batcher.pending == 0
            answers = await outcomes(callers)
            model.let_go()
        return answers

    assert [type(each) for each in run(scenario())] == [BatcherClosedError] * 5
    assert model.batches == [[0, 1]]


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
    for thread in threading.enumerate():
        if thread.name.startswith("trainperf-batcher"):
            thread.join(60)
            assert not thread.is_alive()


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
    for thread in threading.enumerate():
        if thread.name.startswith("trainperf-batcher"):
            thread.join(60)

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


def test_a_batcher_that_was_closed_before_it_was_open_is_not_opened() -> None:
    """Its thread is gone."""

    async def scenario() -> None:
        batcher = DynamicBatcher(Doubling(), max_batch_size=2, max_wait_s=0.0)
        await batcher.close()
        with pytest.raises(ConfigError, match="make a new one"):
            await batcher.__aenter__()

    run(scenario())


@pytest.mark.parametrize("returned", [None, 3, torch.tensor(1.0)])
def test_what_is_no_answers_at_all_is_said(returned: Any) -> None:
    """By its type; a tensor without dimensions is iterable only by name."""

    async def scenario() -> None:
        async with DynamicBatcher(lambda _: returned, max_batch_size=1, max_wait_s=0.0) as batcher:
            with pytest.raises(BatchFailedError, match=type(returned).__name__):
                await batcher.submit(1)

    run(scenario())
