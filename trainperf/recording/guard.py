"""Boundary for faults of trainperf itself: training goes on.

The only place with a broad `except`.  A fault switches off the part it arose in, is logged once,
counted, and shown in the report.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TypeVar, cast

from typing_extensions import ParamSpec


P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")

log = logging.getLogger("trainperf")


class Guard:
    """Keeps the faults of one run and switches off the parts they arose in."""

    def __init__(self) -> None:
        self.faults: dict[str, str] = {}
        """Part to the error that switched it off."""
        self._on_fault: dict[str, list[Callable[[], object]]] = {}
        self._chains: list[_Chain] = []

    def when_faulty(self, part: str, act: Callable[[], object]) -> None:
        """Call *act* once if *part* is switched off; several are called in turn."""
        self._on_fault.setdefault(part, []).append(act)

    def wrap(self, part: str, function: Callable[P, R]) -> Callable[P, R | None]:
        """*function*, but a no-op once *part* has failed.  The result runs every step."""
        faults = self.faults

        def guarded(*args: P.args, **kwargs: P.kwargs) -> R | None:
            if part in faults:
                return None
            try:
                return function(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 the one boundary for our own faults
                self.fault(part, error)
                return None

        return guarded

    def act(self, part: str, function: Callable[[], object]) -> Callable[[], None]:
        """As `wrap`, for a function without arguments: a third of the cost of calling it."""
        faults = self.faults

        def guarded() -> None:
            if part in faults:
                return
            try:
                function()
            except Exception as error:  # noqa: BLE001 the one boundary for our own faults
                self.fault(part, error)

        return guarded

    def hook(self, part: str, function: Callable[..., object]) -> Callable[..., None]:
        """As `wrap`, for a hook that PyTorch calls: no result, and no arguments with names."""
        faults = self.faults

        def guarded(*given: object) -> None:
            if part in faults:
                return
            try:
                function(*given)
            except Exception as error:  # noqa: BLE001 the one boundary for our own faults
                self.fault(part, error)

        return guarded

    def listener(self, part: str, function: Callable[..., object]) -> Callable[..., None]:
        """As `wrap`, for who is told much and needs no result: arguments with names are dropped."""
        faults = self.faults

        def guarded(*given: object, **_: object) -> None:
            if part in faults:
                return
            try:
                function(*given)
            except Exception as error:  # noqa: BLE001 the one boundary for our own faults
                self.fault(part, error)

        return guarded

    def each(self, hooks: Iterable[tuple[str, Callable[[A], object]]]) -> Callable[[A], None]:
        """Several parts' hooks behind one call, each switched off by its own part's fault only.

        The result runs every step: a plain function of one argument is the cheapest to call.
        """
        chain = self._chain(hooks)
        if len(chain.hooks) == 1:
            part, hook = chain.hooks[0]
            return self._alone(part, hook)

        def call(argument: A) -> None:
            for part, hook in chain.hooks:
                try:
                    hook(argument)
                except Exception as error:  # noqa: BLE001 the one boundary for our own faults
                    self.fault(part, error)

        return call

    def each_of_two(
        self, hooks: Iterable[tuple[str, Callable[[A, B], object]]]
    ) -> Callable[[A, B], None]:
        """As `each`, for hooks of two arguments."""
        chain = self._chain(hooks)

        def call(first: A, second: B) -> None:
            for part, hook in chain.hooks:
                try:
                    hook(first, second)
                except Exception as error:  # noqa: BLE001 the one boundary for our own faults
                    self.fault(part, error)

        return call

    def run(self, part: str, function: Callable[[], R]) -> R | None:
        """Call *function* once under the guard."""
        return self.wrap(part, function)()

    def last(self, part: str, function: Callable[[], object]) -> None:
        """Let *part* clean up, even if it has failed; that it then fails again is no news."""
        try:
            function()
        except Exception as error:  # noqa: BLE001 the one boundary for our own faults
            self.fault(part, error)

    def bracket(
        self, part: str, enter: Callable[[], object] | None, leave: Callable[[], object] | None
    ) -> AbstractContextManager[None]:
        """A reusable context manager around the two calls, of which one may be missing."""
        kind = _AtExit if enter is None else _AtEntry if leave is None else _Both
        return cast("AbstractContextManager[None]", kind(self, part, enter, leave))

    def _alone(self, part: str, hook: Callable[[A], object]) -> Callable[[A], None]:
        faults = self.faults

        def call(argument: A) -> None:
            if part in faults:
                return
            try:
                hook(argument)
            except Exception as error:  # noqa: BLE001 the one boundary for our own faults
                self.fault(part, error)

        return call

    def _chain(self, hooks: Iterable[tuple[str, Callable[..., object]]]) -> "_Chain":
        chain = _Chain([hook for hook in hooks if hook[0] not in self.faults])
        self._chains.append(chain)
        return chain

    def fault(self, part: str, error: Exception) -> None:
        """Switch *part* off because of *error*."""
        if part in self.faults:
            return
        self.faults[part] = f"{type(error).__name__}: {error}"
        # A full disk is nobody's mistake; anything else is one of ours.
        why = "it could not be written" if isinstance(error, OSError) else "an error of its own"
        log.warning(
            "trainperf: %s is switched off for this run, %s (training is not affected): %s",
            part,
            why,
            self.faults[part],
            exc_info=log.isEnabledFor(logging.DEBUG),
        )
        for chain in self._chains:
            chain.drop(part)
        for act in self._on_fault.get(part, ()):
            self.last(f"what follows from the fault of {part}", act)


class NoBracket:
    """A context manager that does nothing, and runs no Python code to do it.

    Built-ins that take whatever they are given and return something false: a step of a `Trainer`
    enters some thirty of these.
    """

    __slots__ = ()
    __enter__ = staticmethod(bool)
    __exit__ = staticmethod("".format)


class _Acts:
    """What there is to call on entry and on exit, each behind the guard.

    Runs many times every step: a class, not a generator.  Which of the two a context manager
    calls is its class's matter, so that the other costs nothing.
    """

    __slots__ = ("_enter", "_guard", "_leave", "_part")

    def __init__(
        self,
        guard: Guard,
        part: str,
        enter: Callable[[], object] | None,
        leave: Callable[[], object] | None,
    ) -> None:
        self._guard = guard
        self._part = part
        self._enter = enter or _nothing
        self._leave = leave or _nothing

    def entering(self) -> None:
        """Call what is to be called on entry."""
        try:
            self._enter()
        except Exception as error:  # noqa: BLE001 the one boundary for our own faults
            self._guard.fault(self._part, error)

    def leaving(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        """Call what is to be called on exit."""
        try:
            self._leave()
        except Exception as fault:  # noqa: BLE001 the one boundary for our own faults
            self._guard.fault(self._part, fault)


class _Both(_Acts):
    __slots__ = ()
    __enter__ = _Acts.entering
    __exit__ = _Acts.leaving


class _AtEntry(_Acts):
    __slots__ = ()
    __enter__ = _Acts.entering
    __exit__ = NoBracket.__exit__


class _AtExit(_Acts):
    __slots__ = ()
    __enter__ = NoBracket.__enter__
    __exit__ = _Acts.leaving


def _nothing() -> None:
    pass


class _Chain:
    """Hooks that are called one after the other, without those of parts that have failed."""

    __slots__ = ("hooks",)

    def __init__(self, hooks: list[tuple[str, Callable[..., object]]]) -> None:
        self.hooks = hooks

    def drop(self, part: str) -> None:
        """Call the hooks of *part* no more.  A call under way goes on through the old list."""
        self.hooks = [hook for hook in self.hooks if hook[0] != part]
