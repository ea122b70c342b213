"""Lines of the user's code that a fit spends its time in: of the training thread and of workers.

A thread looks at the training thread's stack.  The loop itself runs none of it.
"""

import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from trainperf.core.artifacts import write_document
from trainperf.core.artifacts.lines import STARTUP, SampledLines
from trainperf.core.machine.clocks import monotonic_ns
from trainperf.core.machine.processes import age_s
from trainperf.recording.early_lines import EARLY_LINES, preparing
from trainperf.recording.line_sampler import LineSampler
from trainperf.recording.probes.base import Probe, add
from trainperf.recording.recorder import Draft
from trainperf.recording.schedule import CostLimit
from trainperf.recording.stacks import Stack
from trainperf.recording.worker_lines import WORKER_LINES, joined


_FIRST_WRITE_NS, _WRITE_EVERY_NS = 2_000_000_000, 20_000_000_000


class LinesProbe(Probe):
    """Samples the thread that attaches it, which is the one that trains.

    Args:
        run: Where `lines.json` is written, now and then and at the end.
        budget: Share of wall time that it may cost, after a credit.
        early: Samples of this process from before the fit.
    """

    name = "lines"

    def __init__(
        self,
        run: Path,
        *,
        budget: float | None = None,
        early: Sequence[SampledLines] = (),
    ) -> None:
        self._run = run
        self._sampler = LineSampler(self._where, budget=budget)
        self._early = early
        self._before_fit_s = 0.0
        self._charged_ns = 0

    def begin(self) -> None:
        """Begin to sample this thread."""
        age = age_s()
        if age is not None and self._early:  # its own start counts in the fit
            self._before_fit_s = max(0.0, age - (monotonic_ns() - self.recorder.zero_ns) / 1e9)
        WORKER_LINES.forget_the_gone()
        self._write_due = CostLimit(least_ns=_WRITE_EVERY_NS)
        self._write_due.next_ns = monotonic_ns() + _FIRST_WRITE_NS
        self._sampler.start(
            threading.get_ident(),
            self.shield(self._sampler.sample_until_stopped),
            "trainperf lines",
        )

    def detach(self) -> None:
        """Stop, and write what was seen."""
        if self._sampler.stop():
            write_document(self.document(), self._run)
            WORKER_LINES.end()

    def resolve(self, drafts: Sequence[Draft]) -> None:
        """Charge the last step with what sampling has cost since.  Every flush.

        What was seen so far is written, if it is time: a fit that is killed keeps it.
        """
        cost_ns = self._sampler.cost_ns
        if drafts:
            add(drafts[-1], "overhead_ns", cost_ns - self._charged_ns)
            self._charged_ns = cost_ns
        if self._write_due.due(monotonic_ns()):
            write_document(self.document(), self._run)

    def document(self) -> SampledLines:
        """What was seen so far, here and in the workers of loaders."""
        lines = msgspec.structs.replace(
            self._sampler.lines(),
            before_fit_s=self._before_fit_s,
            seen_from=EARLY_LINES.seen_from,
        )
        early = self._early if self._before_fit_s else ()
        return joined(lines, (*early, *WORKER_LINES.collect()))

    def _where(self, stack: Stack) -> tuple[str, int, Stack] | None:
        if self.recorder.ended:
            return None
        slot = self.recorder.label
        return slot, self.recorder.index, preparing(stack) if slot == STARTUP else stack
