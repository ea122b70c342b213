"""Sampler of the training thread: which lines of the user's code a fit spends its time in.

A thread looks at the training thread's stack, at a rate that its own measured cost limits.  The
loop itself runs none of it.
"""

import _thread
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from trainperf.core.artifacts import write_document
from trainperf.core.artifacts.lines import BEFORE_FIT, IMPORTS, Sample, SampledLines
from trainperf.core.machine.clocks import HostClock, monotonic_ns
from trainperf.core.machine.processes import age_s
from trainperf.core.phases import GAPS, PHASES
from trainperf.recording.early_lines import EarlySample, Stack, stack_of
from trainperf.recording.probes.base import Probe, add
from trainperf.recording.probes.user_stacks import UserStacks
from trainperf.recording.recorder import Draft
from trainperf.recording.schedule import CostLimit


BUDGET = 0.001
"""Share of wall time that sampling may cost: at half of it a fit of half a minute names no line."""
CREDIT_NS, EARLY_NS = 20_000_000, 50_000_000
"""What sampling may cost beyond that, once, and between two samples until it has: so that a fit of
seconds names its lines as well."""
LEAST_NS = 10_000_000
"""Between two samples, however little they cost."""
SWITCH_NS = 160_000
"""What a sample costs beyond its own time: the training thread gives up the interpreter lock amid
Python code, and gets it back.  Measured by `scripts/bench/lines.py`."""
EAGER_NS = 10_000_000
"""Before a sample, in which the interpreter's switch interval is short: longer than what a sample
before would fall behind, so that it comes anywhere in the loop alike."""
EAGER_SWITCH_S = 0.0005
MOST_SAMPLES = 16_384
"""Kept ones; whenever there are more, every second one goes."""
_FIRST_WRITE_NS, _WRITE_EVERY_NS = 2_000_000_000, 20_000_000_000

_LABELS = [*(phase.label for phase in PHASES), *(gap.label for gap in GAPS)]
"""By slot."""
_GOLDEN = 0.6180339887498949
_LOADING = "<frozen importlib._bootstrap>"
"""The part of Python that loads modules."""


class _EagerSwitches:
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


class LinesProbe(Probe):
    """Samples the thread that attaches it, which is the one that trains.

    Args:
        run: Where `lines.json` is written, now and then and at the end.
        budget: Share of wall time that it may cost, after a credit; by default `BUDGET`.
        clock: Of the pauses, and of its own cost.
        early: Samples of this process from before the fit.
    """

    name = "lines"

    def __init__(
        self,
        run: Path,
        *,
        budget: float | None = None,
        clock: HostClock = monotonic_ns,
        early: Sequence[EarlySample] = (),
    ) -> None:
        self._run = run
        self._budget = BUDGET if budget is None else budget
        self._clock = clock
        self._stacks = UserStacks()
        self._seen_early = early
        self._early: list[Sample] = []
        self._before_fit_s = 0.0
        self._samples: list[Sample] = []
        self._taken, self._every = 0, 1
        self._cost_ns = self._charged_ns = 0
        self._began_ns = self._last_ns = 0
        self._shift = 0.0
        self._stop = _thread.allocate_lock()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        """Begin to sample this thread."""
        self._take_early(self.recorder.zero_ns)
        self._watched = threading.get_ident()
        self._began_ns = self._last_ns = self._clock()
        self._write_due = CostLimit(least_ns=_WRITE_EVERY_NS)
        self._write_due.next_ns = self._began_ns + _FIRST_WRITE_NS
        self._stop.acquire()
        run = self.shield(self._sample_until_stopped)
        self._thread = threading.Thread(target=run, name="trainperf lines", daemon=True)
        self._thread.start()

    def _take_early(self, zero_ns: int) -> None:
        """What was seen before the fit began: its own start counts in the fit."""
        age, stacks = age_s(), self._stacks
        if not self._seen_early or age is None:
            return
        self._before_fit_s = max(0.0, age - (self._clock() - zero_ns) / 1e9)
        self._early = [
            Sample(stacks.number(_slot(each.stack), each.stack), -1, each.stands_for_us)
            for each in self._seen_early
            if each.at_ns <= zero_ns
        ]

    def detach(self) -> None:
        """Stop, and write what was seen."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._stop.release()
            thread.join(timeout=1.0)
            write_document(self.document(), self._run)

    def resolve(self, drafts: Sequence[Draft]) -> None:
        """Charge the last step with what sampling has cost since.  Every flush.

        What was seen so far is written, if it is time: a fit that is killed keeps it.
        """
        cost_ns = self._cost_ns
        if drafts:
            add(drafts[-1], "overhead_ns", cost_ns - self._charged_ns)
            self._charged_ns = cost_ns
        if self._write_due.due(self._clock()):
            write_document(self.document(), self._run)

    def document(self) -> SampledLines:
        """What was seen so far."""
        samples, stacks = list(self._samples), tuple(self._stacks.stacks)
        return SampledLines(
            taken=self._taken,
            every=self._every,
            sampled_s=(self._last_ns - self._began_ns) / 1e9,
            cost_s=self._cost_ns / 1e9,
            places=self._stacks.places(),
            stacks=stacks,
            samples=(*self._early, *samples),
            before_fit_s=self._before_fit_s,
        )

    def _sample_until_stopped(self) -> None:
        pause_ns = LEAST_NS
        while True:
            # The lock waits without the interpreter; whoever releases it ends the thread.
            if self._stop.acquire(timeout=pause_ns / 1e9):
                return
            with _EagerSwitches():
                wait_ns = int(EAGER_NS * (0.3 + 0.7 * (self._shift * 7.0 % 1.0)))
                due_ns = self._clock() + wait_ns
                if self._stop.acquire(timeout=wait_ns / 1e9):
                    return
                begun = self._clock()
                self._look(pause_ns + wait_ns + begun - due_ns)
                self._last_ns = self._clock()
            self._cost_ns += self._last_ns - begun + SWITCH_NS
            pause_ns = self._pause_ns()

    def _pause_ns(self) -> int:
        """Until the next sample: by the mean cost so far, and never in step with the loop."""
        mean_ns = max(LEAST_NS, self._cost_ns / self._taken / self._budget)
        if self._cost_ns < CREDIT_NS:
            mean_ns = min(mean_ns, EARLY_NS)
        self._shift = (self._shift + _GOLDEN) % 1.0
        return int(mean_ns * (0.5 + self._shift))

    def _look(self, stands_for_ns: int) -> None:
        recorder = self.recorder
        slot, step = _LABELS[recorder.slot], recorder.index
        frame = sys._current_frames().get(self._watched)  # noqa: SLF001 the documented name of it
        self._taken += 1
        lines = stack_of(frame)
        if not lines:  # one being left has lost its code
            return
        stack = self._stacks.number(slot, lines, frame)
        if self._taken % self._every:
            return
        self._samples.append(Sample(stack, step, stands_for_ns // 1000))
        if len(self._samples) >= MOST_SAMPLES:
            del self._samples[::2]
            self._every *= 2


def _slot(early: Stack) -> str:
    """Whether a module was being loaded, or the script did something else."""
    return IMPORTS if any(code.co_filename == _LOADING for code, _ in early) else BEFORE_FIT
