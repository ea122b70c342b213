"""What is a probe?  The source of some facts about every step.

A probe says which facts it feeds and fills them into the open draft as the step runs.  Values that
are still on the device go into a ring; `resolve` sees each step again once the device has passed.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import ClassVar, Protocol

from typing_extensions import ParamSpec

from trainperf.core.steps.records import Scalar
from trainperf.recording.probes.device_ring import Ring
from trainperf.recording.recorder import Draft, Recorder


P = ParamSpec("P")

Batch = object
"""Whatever the loader yields: probes look into it and never keep it."""


class Shield(Protocol):
    """Wraps a function that torch will call by itself, so that a fault of ours stays ours."""

    def __call__(self, function: Callable[P, None], /) -> Callable[P, None]:
        """The same function, which never raises."""
        ...


def _as_it_is(function: Callable[P, None]) -> Callable[P, None]:
    return function


class Probe:
    """Base of all probes; every hook does nothing.  Hooks that are overridden are called."""

    name: ClassVar[str]
    facts: ClassVar[tuple[str, ...]] = ()
    """Facts this probe feeds: columns of the run."""
    counts: ClassVar[tuple[str, ...]] = ()
    """Those of them that are 0 in a step in which nothing happened, not unknown."""

    recorder: Recorder
    shield: Shield = staticmethod(_as_it_is)
    """To wrap the hooks that `attach` gives to torch; set by the monitor before it."""

    def attach(self, recorder: Recorder) -> None:
        """Begin to feed *recorder*; its columns are fixed already."""
        self.recorder = recorder

    def ended(self, reason: str) -> None:
        """The fit is over, and how: the reason of its end mark.  Called once, before `detach`."""

    def detach(self) -> None:
        """Remove every hook from every object.  Called once, also after an exception."""

    def micro_batch(self, batch: Batch, loss: object) -> None:
        """A forward-backward pass ended.  Runs every micro-batch."""

    def close(self, draft: Draft) -> None:
        """The step's host time is known.  Runs every step."""

    def gap(self, begins: bool) -> None:  # noqa: FBT001 two moments of one thing
        """Training stops for a gap, or goes on after one (or goes from one into another)."""

    def sample(self, draft: Draft) -> None:
        """A step is complete, and it is a while since the last sample; or it is the last step."""

    def seal(self) -> None:
        """A group of steps ends here: start copying what the device holds for them."""

    def resolve(self, drafts: Sequence[Draft]) -> None:
        """The device has passed the oldest sealed group: fill in the facts of its steps."""

    def reasons(self) -> dict[str, str]:
        """Fact to the sentence that says why it cannot be measured, as far as known now."""
        return {}

    def notes(self) -> dict[str, str]:
        """How a number was obtained, as far as known now."""
        return {}

    def config(self) -> dict[str, Scalar]:
        """What of the run's configuration only seeing it run can tell, as far as known now."""
        return {}

    def dropped(self) -> int:
        """Values given up because a bounded buffer was full."""
        return 0


def overriding(probes: Iterable[Probe], hook: str) -> list[tuple[str, Callable[..., object]]]:
    """One hook of the probes that have it, each under its probe's name: for the guard to chain."""
    return [
        (probe.name, getattr(probe, hook))
        for probe in probes
        if getattr(type(probe), hook) is not getattr(Probe, hook)
    ]


class RingProbe(Probe):
    """A probe whose values come off the device through one ring."""

    def __init__(self, ring: Ring) -> None:
        self.ring = ring

    def seal(self) -> None:
        """Start the copy."""
        self.ring.seal()

    def resolve(self, drafts: Sequence[Draft]) -> None:
        """Read the group's copies and hand each step its rows."""
        self.ring.resolve()
        for draft in drafts if self.ring.holds else ():
            rows = self.ring.take(draft.index)
            if rows:
                self.fill(draft, rows)

    def fill(self, draft: Draft, rows: list[list[float]]) -> None:
        """Put a step's rows into its facts."""
        raise NotImplementedError

    def dropped(self) -> int:
        """Values given up because the ring was full."""
        return self.ring.dropped


def add(draft: Draft, column: int, amount: float) -> None:
    """Add to a fact that is summed over the micro-batches of a step."""
    before = draft.facts[column]
    draft.facts[column] = amount if before is None else before + amount
