"""Boundary for faults of trainperf itself: training goes on.

The only place with a broad `except`.  A fault switches off the part it arose in, is logged once,
counted, and shown in the report.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from functools import partial
from typing import TypeVar, cast

from typing_extensions import ParamSpec

from trainperf.recording.timeline import DirectBracket


P = ParamSpec("P")
R = TypeVar("R")
A = TypeVar("A")
B = TypeVar("B")

Hook = tuple[str, Callable[..., object]]
"""A part, and what is called of it."""

log = logging.getLogger("trainperf")


class Guard:
    """Keeps the faults of one run and switches off the parts they arose in."""

    def __init__(self) -> None:
        self.faults: dict[str, str] = {}
        """Part to the error that switched it off."""
        self._on_fault: dict[str, list[Callable[[], object]]] = {}

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

    def hook(self, part: str, function: Callable[..., object]) -> Callable[..., None]:
        """As `wrap`, for a framework to call: no result, and arguments with names are dropped."""
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

        def call(argument: A) -> None:
            for part, hook in chain:
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
            for part, hook in chain:
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
        self._even_if_faulty(part, function)()

    def bracket(
        self, part: str, enter: Callable[[], object] | None, leave: Callable[[], object] | None
    ) -> AbstractContextManager[None]:
        """A reusable context manager around the two calls, of which one may be missing.

        Both are called whatever has failed: what was entered is left.
        """
        bracket = DirectBracket(
            self._even_if_faulty(part, enter) if enter else NoBracket.__enter__,
            self._even_if_faulty(part, leave) if leave else NoBracket.__exit__,
        )
        return cast("AbstractContextManager[None]", bracket)

    def _even_if_faulty(self, part: str, function: Callable[[], object]) -> Callable[..., None]:
        def call(*_: object) -> None:
            try:
                function()
            except Exception as error:  # noqa: BLE001 the one boundary for our own faults
                self.fault(part, error)

        return call

    def _chain(self, hooks: Iterable[Hook]) -> list[Hook]:
        chain = [hook for hook in hooks if hook[0] not in self.faults]
        for place, (part, _) in enumerate(chain):
            self.when_faulty(part, partial(chain.__setitem__, place, (part, _nothing)))
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


def _nothing(*_: object) -> None:
    """What is called of a part that was switched off."""
