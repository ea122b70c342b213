"""Feeds pauses inside a step: the garbage collector, and graphs that torch.compile built."""

import gc
import math
import sys
from collections.abc import Sequence
from typing import ClassVar

from trainperf.phases import FIRST_GAP, Tag
from trainperf.probes.base import Probe, add
from trainperf.recorder import Draft, Recorder


GC_SHARE = 0.05
"""A step that spent more than this share collecting garbage is tagged `gc`."""


class GarbageProbe(Probe):
    """Times the collector through `gc.callbacks`; changes nothing about when it runs."""

    name = "gc"
    facts: ClassVar[tuple[str, ...]] = ("gc_ns",)
    counts: ClassVar[tuple[str, ...]] = facts

    def attach(self, recorder: Recorder) -> None:
        """Begin to listen."""
        super().attach(recorder)
        self._column = recorder.column("gc_ns")
        self._began = 0
        gc.callbacks.append(self._listen)

    def detach(self) -> None:
        """Stop listening."""
        if self._listen in gc.callbacks:
            gc.callbacks.remove(self._listen)

    def resolve(self, drafts: Sequence[Draft]) -> None:
        """Tag the steps that did little else."""
        for draft in drafts:
            spent = draft.facts[self._column]
            if spent and spent > GC_SHARE * (sum(draft.host_ns) or math.inf):
                draft.tags |= Tag.GC

    def _listen(self, phase: str, info: dict[str, int]) -> None:
        recorder = self.recorder
        if phase == "start":
            self._began = recorder.now_ns() if recorder.slot < FIRST_GAP else 0
        elif self._began:
            if recorder.draft is not None:
                add(recorder.draft, self._column, recorder.now_ns() - self._began)
            self._began = 0


class CompileProbe(Probe):
    """Counts the graphs torch.compile has built, by its own statistics.

    Reads `torch._dynamo.utils.counters`, which is not a public interface; if it goes away, the
    probe is switched off and recompiles are reported as not measured.
    """

    name = "compile"
    facts: ClassVar[tuple[str, ...]] = ("recompiles",)
    counts: ClassVar[tuple[str, ...]] = facts

    def attach(self, recorder: Recorder) -> None:
        """Note how many graphs there are already."""
        super().attach(recorder)
        self._column = recorder.column("recompiles")
        self._graphs = self._count()

    def close(self, draft: Draft) -> None:
        """Compare with the step before, unless a gap has ended it.  Runs every step."""
        if self.recorder.slot < FIRST_GAP:
            self._charge(draft)

    def gap(self, begins: bool) -> None:  # noqa: FBT001 as in the base
        """What was built so far is the open step's; what is built in a gap is nobody's."""
        draft = self.recorder.draft
        if begins and draft is not None:
            self._charge(draft)
        else:
            self._graphs = self._count()

    def _charge(self, draft: Draft) -> None:
        utils = sys.modules.get("torch._dynamo.utils")
        if utils is None:
            return
        # `[...]` would run the counter's Python code for a missing key, every step.
        graphs = utils.counters["stats"].get("unique_graphs", 0)
        if graphs == self._graphs:
            return
        if graphs > self._graphs:  # `torch._dynamo.reset()` starts counting anew
            add(draft, self._column, graphs - self._graphs)
            draft.tags |= Tag.RECOMPILED
        self._graphs = graphs

    def _count(self) -> int:
        utils = sys.modules.get("torch._dynamo.utils")
        if utils is None:
            return 0
        graphs: int = utils.counters["stats"].get("unique_graphs", 0)
        return graphs
