"""Relay that hears a Trainer's actions without patching it, as its profiler for a while.

`trainer.profiler` is public and looked up at every call.  The relay stands in its place, brackets
each action, and forwards to the profiler the user configured.  Lightning's own `profile` is a
generator; a cached bracket is cheaper, which pays for what we measure.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import cache
from typing import Any, cast

import lightning.pytorch as pl
from lightning.pytorch.profilers import PassThroughProfiler, Profiler

from trainperf.recording.timeline import NO_BRACKET, DirectBracket


Bracket = AbstractContextManager[object]


class ProfilerRelay:
    """Stands in for the trainer's profiler between our `setup` and `teardown`.

    What it does not bracket itself is the inner one's.  It is no `Profiler`, which would tear that
    down as it goes away.
    """

    def __init__(self, inner: Profiler, bracket: Callable[[str], Bracket | None]) -> None:
        self.inner = inner
        self._make = bracket
        self._ours = cache(self._own)
        """What happens at an action; made when it is first asked for, as the next."""
        self._forwards = type(inner) is not PassThroughProfiler
        # Looked up and called some sixty times every step: without a Python call in between.
        self.profile = cache(self._whole)
        """The bracket of an action."""

    def start(self, action_name: str) -> None:
        """An action that Lightning does not bracket begins."""
        if self._forwards:
            self.inner.start(action_name)
        self._ours(action_name).__enter__()

    def stop(self, action_name: str) -> None:
        """An action that Lightning does not bracket ends."""
        self._ours(action_name).__exit__(None, None, None)
        if self._forwards:
            self.inner.stop(action_name)

    def renew(self) -> None:
        """Make every bracket anew: what they do has changed."""
        self.profile.cache_clear()
        self._ours.cache_clear()

    def __getattr__(self, name: str) -> object:
        # A user's callback may ask the profiler they configured for its own results.
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def _whole(self, name: str) -> Bracket:
        """What happens at an action, with the user's profiler around it."""
        ours, profile = self._ours(name), self.inner.profile
        if not self._forwards:
            return ours
        contexts: list[Bracket] = []

        def enter() -> None:
            context = profile(name)
            context.__enter__()
            contexts.append(context)
            ours.__enter__()

        def leave(*error: Any) -> None:  # noqa: ANN401 as `__exit__` is given it
            ours.__exit__(*error)
            contexts.pop().__exit__(*error)

        # Theirs around ours: its cost is not part of what we bracket.
        return DirectBracket(enter, leave)

    def _own(self, name: str) -> Bracket:
        """What we do ourselves."""
        return self._make(name) or NO_BRACKET


def install(trainer: "pl.Trainer", bracket: Callable[[str], Bracket | None]) -> ProfilerRelay:
    """Put a relay in the trainer's profiler's place; a stale one is unwrapped first."""
    restore(trainer)
    relay = ProfilerRelay(trainer.profiler, bracket)
    trainer.profiler = cast("Profiler", relay)
    return relay


def restore(trainer: "pl.Trainer") -> None:
    """Give the trainer its own profiler back, if a relay stands in for it."""
    trainer.profiler = users_profiler(trainer)


def users_profiler(trainer: "pl.Trainer") -> Profiler:
    """The trainer's own, whatever stands in for it."""
    profiler: object = trainer.profiler
    while isinstance(profiler, ProfilerRelay):
        profiler = profiler.inner
    return cast("Profiler", profiler)
