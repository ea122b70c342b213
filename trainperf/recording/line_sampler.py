"""Sampler of a thread: which lines of the user's code it is at, seen by another thread.

The rate is limited by its own measured cost.  What is watched runs none of it.
"""

import _thread
import sys
import threading
from collections.abc import Callable

from trainperf.core.artifacts.lines import Sample, SampledLines
from trainperf.core.machine.clocks import HostClock, monotonic_ns
from trainperf.recording.probes.user_stacks import UserStacks
from trainperf.recording.stacks import Stack, running_in


BUDGET = 0.001
"""Share of wall time that sampling may cost: at half of it a fit of half a minute names no line."""
CREDIT_NS, EARLY_NS = 20_000_000, 50_000_000
"""What sampling may cost beyond that, once, and between two samples until it has: so that a fit of
seconds names its lines as well."""
LEAST_NS = 10_000_000
"""Between two samples, however little they cost."""
SWITCH_NS = 160_000
"""What a sample costs beyond its own time: the watched thread gives up the interpreter lock amid
Python code, and gets it back.  Measured by `scripts/bench/lines.py`."""
EAGER_NS = 10_000_000
"""Before a sample, in which the interpreter's switch interval is short: longer than what a sample
before would fall behind, so that it comes anywhere in the loop alike."""
EAGER_SWITCH_S = 0.0005
MOST_SAMPLES = 16_384
"""Kept ones; whenever there are more, every second one goes."""

_GOLDEN = 0.6180339887498949

Where = Callable[[Stack], tuple[str, int, Stack] | None]
"""Slot and number of the step that the watched thread is in, given its stack, and as much of that
as tells what it does there; `None` where it is in none."""


class EagerSwitches:
    """Has Python code give up the interpreter lock sooner, just before a sample.

    Otherwise a thread that waits for it comes in where an operator lets it go, or after 5 ms: code
    that takes less would never be seen.  Whoever changes the interval meanwhile keeps the change.
    """

    def __enter__(self) -> None:
        self._before = sys.getswitchinterval()
        sys.setswitchinterval(min(EAGER_SWITCH_S, self._before))
        self._eager = sys.getswitchinterval()

    def __exit__(self, *_: object) -> None:
        if sys.getswitchinterval() == self._eager:
            sys.setswitchinterval(self._before)


class LineSampler:
    """Samples a thread from `start` to `stop`.

    Args:
        where: Asked on the sampling thread before each sample is kept.
        budget: Share of wall time that it may cost, after a credit; by default `BUDGET`.
        clock: Of the pauses, and of its own cost.
        most: Samples that are kept at most.
    """

    def __init__(
        self,
        where: Where,
        *,
        budget: float | None = None,
        clock: HostClock = monotonic_ns,
        most: int = MOST_SAMPLES,
    ) -> None:
        self._where, self._clock, self._most = where, clock, most
        self._budget = BUDGET if budget is None else budget
        self.stacks = UserStacks()
        self.samples: list[Sample] = []
        self.taken, self.every = 0, 1
        """Samples in all; one of so many is kept, evenly over the time."""
        self.cost_ns = 0
        self._shift = 0.0
        self._stop = _thread.allocate_lock()
        self._thread: threading.Thread | None = None

    def start(self, watched: int, run: Callable[[], object], name: str) -> None:
        """Begin to sample a thread.

        Args:
            watched: Its identity.
            run: What the sampling thread runs: `sample_until_stopped`, with a shield around it.
            name: Of that thread.
        """
        self._watched = watched
        self._stop.acquire()
        self._thread = threading.Thread(target=run, name=name, daemon=True)
        self._thread.start()

    def stop(self) -> bool:
        """End it; whether it ran."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stop.release()
            thread.join(timeout=1.0)
        return thread is not None

    def lines(self) -> SampledLines:
        """What was seen so far."""
        samples = tuple(self.samples)  # first: what they are numbers of may become more
        return SampledLines(
            taken=self.taken,
            every=self.every,
            cost_s=self.cost_ns / 1e9,
            places=self.stacks.places(),
            stacks=tuple(self.stacks.stacks),
            samples=samples,
        )

    def sample_until_stopped(self, after: Callable[[], bool] = lambda: True) -> None:
        """Look, wait, and look again, for as long as *after*, called after each look, allows."""
        pause_ns, due_ns = LEAST_NS, self._clock()
        while True:
            wait_ns = int(EAGER_NS * (0.3 + 0.7 * (self._shift * 7.0 % 1.0)))
            gap_ns = pause_ns + wait_ns
            due_ns += gap_ns
            # The lock waits without the interpreter; whoever releases it ends the thread.
            if self._stop.acquire(timeout=max(0, due_ns - wait_ns - self._clock()) / 1e9):
                return
            with EagerSwitches():
                # Who has held the interpreter until then is looked at before it goes on.
                if self._stop.acquire(timeout=max(0, due_ns - self._clock()) / 1e9):
                    return
                begun = self._clock()
                # So many further looks were due meanwhile: the first one stands for all of them.
                held_ns = max(0, begun - due_ns) // gap_ns * gap_ns
                due_ns += held_ns
                self._look(gap_ns + held_ns)
                done = self._clock()
            self.cost_ns += done - begun + SWITCH_NS
            if not after():
                return
            pause_ns = self._pause_ns()

    def _pause_ns(self) -> int:
        """Until the next sample: by the mean cost so far, and never in step with the loop."""
        mean_ns = max(LEAST_NS, self.cost_ns / self.taken / self._budget)
        if self.cost_ns < CREDIT_NS:
            mean_ns = min(mean_ns, EARLY_NS)
        self._shift = (self._shift + _GOLDEN) % 1.0
        return int(mean_ns * (0.5 + self._shift))

    def _look(self, stands_for_ns: int) -> None:
        frame, whole = running_in(self._watched)
        self.taken += 1
        at = self._where(whole) if whole else None  # one being left has lost its code
        if at is None:
            return
        slot, step, lines = at
        stack = self.stacks.number(slot, lines, frame)
        if self.taken % self.every:
            return
        self.samples.append(Sample(stack, step, stands_for_ns // 1000))
        if len(self.samples) >= self._most:
            del self.samples[::2]
            self.every *= 2
