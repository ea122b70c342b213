"""Base of all probes: sources of facts about every step.

A probe says which facts it feeds and fills them into the open draft as the step runs.  Most have
two methods: one that reads something (`micro_batch`, `close`, `gap` or `sample`), and `begin` or
`config`.  Values that are still on the device go into a ring; `resolve` sees each step again once
the device has passed.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property
from typing import ClassVar

from torch.utils.hooks import RemovableHandle

from trainperf.audit.attribution import Shield, as_it_is
from trainperf.core.machine.clocks import TimingEvent
from trainperf.core.steps.records import Scalar
from trainperf.recording.probes.device_ring import Ring
from trainperf.recording.process_objects import UntracedHook
from trainperf.recording.recorder import Draft, Recorder


Batch = object
"""Whatever the loader yields: probes look into it and keep at most its mask, for some steps."""


class Probe:
    """Base of all probes; every hook does nothing.  Hooks that are overridden are called."""

    name: ClassVar[str]
    """Unique among the probes of a fit: faults are kept under it."""
    facts: ClassVar[tuple[str, ...]] = ()
    """Facts this probe feeds: columns of the run."""
    counts: ClassVar[tuple[str, ...]] = ()
    """Those of them that are 0 in a step in which nothing happened, not unknown."""

    share: ClassVar[float] = 1e-3
    """Of the time, for `sample`: what it took decides when it is called next."""
    least_ns: ClassVar[int] = 10_000_000
    """Between two samples, however little they cost."""
    interrupted: ClassVar[float] = math.inf
    """A sample so many times as long as the shortest says nothing about the cost of the next."""

    reads_device: ClassVar[bool] = False
    """Whether it reads what an asynchronous device has still to write: nothing after its error."""

    recorder: Recorder
    shield: Shield = staticmethod(as_it_is)
    """To wrap the hooks that `attach` gives to torch; set by the monitor before it."""

    def attach(self, recorder: Recorder) -> None:
        """Feed *recorder* from now on; its columns are fixed already."""
        self.recorder = recorder
        self.begin()

    def begin(self) -> None:
        """The fit begins, and the recorder is there."""

    def ended(self, reason: str) -> None:
        """The fit is over, and how: the reason of its end mark.  Called once, before `detach`."""

    @cached_property
    def undo(self) -> ExitStack:
        """What `detach` takes back."""
        return ExitStack()

    @cached_property
    def learned(self) -> dict[str, Scalar]:
        """Of the run's configuration, as `config` gives it."""
        return {}

    @cached_property
    def noted(self) -> dict[str, str]:
        """How numbers were obtained, as `notes` gives it."""
        return {}

    def hear(
        self,
        register: Callable[..., RemovableHandle],
        act: Callable[..., None],
        **options: bool,
    ) -> None:
        """Have torch call *act*, until `detach`, without a compiler tracing it.

        Args:
            register: Of the object that is heard, e.g. its `register_forward_hook`.
            act: A fault of it switches this probe off.
            options: Of the registration.
        """
        self.undo.callback(register(UntracedHook(self.shield(act)), **options).remove)

    def detach(self) -> None:
        """Remove every hook from every object.  Called at the end, also after an exception."""
        self.undo.close()

    def micro_batch(self, batch: Batch, loss: object) -> None:
        """A forward-backward pass ended.  Runs every micro-batch."""

    def close(self, draft: Draft) -> None:
        """The step's host time is known.  Runs every step."""

    def gap(self, begins: bool) -> None:  # noqa: FBT001 two moments of one thing
        """Training stops for a gap, or goes on after one (or goes from one into another)."""

    def sample(self, draft: Draft) -> None:
        """Called after a step as often as its cost allows, and for the last one.

        For what is too expensive to be read every step.
        """

    def seal(self) -> Sequence[TimingEvent]:
        """A group of steps ends here: start copying what the device holds for them.

        Returns the events behind the copies: `resolve` is called once they were reached.
        """
        return ()

    def resolve(self, drafts: Sequence[Draft]) -> None:
        """The device has passed the oldest sealed group: fill in the facts of its steps."""

    def reasons(self) -> dict[str, str]:
        """Fact to the sentence that says why it cannot be measured, as far as known now."""
        return {}

    def notes(self) -> dict[str, str]:
        """How a number was obtained, as far as known now."""
        return self.noted

    def config(self) -> dict[str, Scalar]:
        """What of the run's configuration only seeing it run can tell, as far as known now."""
        return self.learned

    def dropped(self) -> int:
        """Values given up because a bounded buffer was full."""
        return 0


_SCALARS = (str, int, float, bool, type(None))


def texts(hook: Callable[[], Mapping[str, object]]) -> dict[str, str]:
    """What a probe's hook says, as texts by name: a user's probe may return anything."""
    return {str(name): str(text) for name, text in hook().items()}


def scalars(hook: Callable[[], Mapping[str, Scalar]]) -> dict[str, Scalar]:
    """As `texts`, but numbers stay what they are."""
    # Not a subclass: NumPy's float64 is one of float, and cannot be written.
    return {
        str(name): value if type(value) in _SCALARS else str(value)
        for name, value in hook().items()
    }


def count(hook: Callable[[], int]) -> int:
    """A number that a probe's hook says: a user's probe may return NumPy's."""
    return int(hook())


def overriding(probes: Iterable[Probe], hook: str) -> list[tuple[str, Callable[..., object]]]:
    """One hook of the probes that have it, each under its probe's name: for the guard to chain."""
    return [
        (probe.name, getattr(probe, hook))
        for probe in probes
        if getattr(type(probe), hook) is not getattr(Probe, hook)
    ]


class SampledProbe(Probe):
    """A probe that is nothing but what it reads now and then, after a step."""

    counted: ClassVar[Collection[str]] = ()
    """Those of its facts that only grow: a step is told by how much since the reading before."""

    def begin(self) -> None:
        """Begin to count."""
        self._before = self.read()

    def read(self) -> Mapping[str, int]:
        """Each fact that is to be had now."""
        raise NotImplementedError

    def sample(self, draft: Draft) -> None:
        """Read on."""
        before, self._before = self._before, self.read()
        for fact, now in self._before.items():
            if fact not in self.counted:
                draft.facts[fact] = now
            elif fact in before:  # whoever resets what counts has it begin anew
                add(draft, fact, now - before[fact] if now >= before[fact] else now)


class RingProbe(Probe):
    """A probe whose values come off the device through one ring."""

    reads_device = True

    def __init__(self, ring: Ring) -> None:
        self.ring = ring

    def seal(self) -> Sequence[TimingEvent]:
        """Start the copy."""
        return self.ring.seal()

    def resolve(self, drafts: Sequence[Draft]) -> None:
        """Read the group's copies and hand each step its rows."""
        self.ring.resolve()
        for draft in drafts if self.ring.rows_of else ():
            if rows := self.ring.take(draft.index):
                self.fill(draft, rows)

    def fill(self, draft: Draft, rows: list[list[float]]) -> None:
        """Put a step's rows into its facts."""

    def dropped(self) -> int:
        """Values given up because the ring was full."""
        return self.ring.dropped


def add(draft: Draft | None, fact: str, amount: float) -> None:
    """Add to a fact that is summed over a step's micro-batches; nothing where no step is open."""
    if draft is not None:
        draft.facts[fact] = (draft.facts[fact] or 0) + amount
