"""Boundary for faults of trainperf itself: training goes on.

The only place with a broad `except`.  A fault switches off the part it arose in, is logged once,
counted, and shown in the report.
"""

import logging
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from typing import TypeVar

from typing_extensions import ParamSpec

from trainperf.recording.timeline import NO_BRACKET, DirectBracket


P = ParamSpec("P")
R = TypeVar("R")

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

    def each(self, hooks: Iterable[tuple[str, Callable[..., object]]]) -> Callable[..., None]:
        """Several parts' hooks behind one call, each switched off by its own part's fault only.

        The result runs every step.
        """
        faults, chain = self.faults, list(hooks)

        def call(*given: object) -> None:
            for part, hook in chain:
                if part in faults:
                    continue
                try:
                    hook(*given)
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
        return DirectBracket(
            self._even_if_faulty(part, enter) if enter else NO_BRACKET.__enter__,
            self._even_if_faulty(part, leave) if leave else NO_BRACKET.__exit__,
        )

    def _even_if_faulty(self, part: str, function: Callable[[], object]) -> Callable[..., None]:
        def call(*_: object) -> None:
            try:
                function()
            except Exception as error:  # noqa: BLE001 the one boundary for our own faults
                self.fault(part, error)

        return call

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
