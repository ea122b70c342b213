"""Feeds pauses inside a step: the garbage collector, and graphs that torch.compile built."""

import gc
import sys
from typing import ClassVar

from trainperf.phases import FIRST_GAP, Tag
from trainperf.probes.base import Probe
from trainperf.recorder import Draft, Recorder


GC_SHARE = 0.05
"""A step that spent more than this share collecting garbage is tagged `gc`."""


class GarbageProbe(Probe):
    """Times the collector through `gc.callbacks`; changes nothing about when it runs."""

    name = "gc"
    facts: ClassVar[tuple[str, ...]] = ("gc_ns",)

    def attach(self, recorder: Recorder) -> None:
        """Begin to listen."""
        super().attach(recorder)
        self._column = recorder.column("gc_ns")
        self._began = self._spent = 0
        gc.callbacks.append(self._listen)

    def detach(self) -> None:
        """Stop listening."""
        if self._listen in gc.callbacks:
            gc.callbacks.remove(self._listen)

    def close(self, draft: Draft) -> None:
        """Charge the pauses to the step that ends.  Runs every step."""
        draft.facts[self._column] = spent = self._spent
        if spent:
            self._spent = 0
            if spent > GC_SHARE * sum(draft.host_ns):
                draft.tags |= Tag.GC

    def _listen(self, phase: str, info: dict[str, int]) -> None:
        recorder = self.recorder
        if phase == "start":
            self._began = recorder.now_ns() if recorder.slot < FIRST_GAP else 0
        elif self._began:
            self._spent += recorder.now_ns() - self._began
            self._began = 0


class CompileProbe(Probe):
    """Counts the graphs torch.compile has built, by its own statistics.

    Reads `torch._dynamo.utils.counters`, which is not a public interface; if it goes away, the
    probe is switched off and recompiles are reported as not measured.
    """

    name = "compile"
    facts: ClassVar[tuple[str, ...]] = ("recompiles",)

    def attach(self, recorder: Recorder) -> None:
        """Note how many graphs there are already."""
        super().attach(recorder)
        self._column = recorder.column("recompiles")
        self._graphs = self._count()

    def close(self, draft: Draft) -> None:
        """Compare with the step before.  Runs every step."""
        graphs = self._count()
        built = max(0, graphs - self._graphs)  # `torch._dynamo.reset()` starts counting anew
        draft.facts[self._column] = built
        if built:
            draft.tags |= Tag.RECOMPILED
        self._graphs = graphs

    def _count(self) -> int:
        utils = sys.modules.get("torch._dynamo.utils")
        if utils is None:
            return 0
        # `[...]` would run the counter's Python code for a missing key, every step.
        graphs: int = utils.counters["stats"].get("unique_graphs", 0)
        return graphs
