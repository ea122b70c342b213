"""Brackets around an epoch, and around a step that fetches its own batches."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType

from trainperf.core.phases import Gap
from trainperf.recording.recorder import Recorder


class EpochBracket:
    """Around an epoch; one that an exception ends has no boundary to the next.

    Needs no guard, as `PhaseBracket`.
    """

    __slots__ = ("_recorder",)

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._recorder.epoch_ended()
        else:
            self._recorder.rest(Gap.SHUTDOWN)


class UntilExhausted:
    """Around a `training_step` that fetches by itself, and may find that there is no more."""

    __slots__ = ("_forward", "_tell")

    def __init__(
        self, forward: AbstractContextManager[None], tell: Callable[[bool], object]
    ) -> None:
        self._forward = forward
        self._tell = tell

    def __enter__(self) -> None:
        self._forward.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tell(kind is StopIteration)
        self._forward.__exit__(kind, error, trace)
