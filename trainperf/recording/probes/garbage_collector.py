"""Feeds pauses inside a step: the garbage collector."""

import gc
import math
from collections.abc import Sequence
from contextlib import suppress
from types import CodeType
from typing import ClassVar

from trainperf.core.phases import FIRST_GAP, Tag
from trainperf.recording.probes.base import Probe, add
from trainperf.recording.recorder import Draft


GC_SHARE = 0.05
"""A step that spent more than this share collecting garbage is tagged `gc`."""


class GarbageProbe(Probe):
    """Times the collector through `gc.callbacks`; changes nothing about when it runs."""

    name = "gc"
    facts: ClassVar[tuple[str, ...]] = ("gc_ns",)
    counts: ClassVar[tuple[str, ...]] = facts

    def begin(self) -> None:
        """Begin to listen."""
        self._began = 0
        gc.callbacks.append(self._listen)
        self.undo.enter_context(suppress(ValueError))  # somebody may have taken it away
        self.undo.callback(gc.callbacks.remove, self._listen)

    def resolve(self, drafts: Sequence[Draft]) -> None:
        """Tag the steps that did little else."""
        for draft in drafts:
            spent = draft.facts["gc_ns"]
            if spent and spent > GC_SHARE * (sum(draft.host_ns) or math.inf):
                draft.tags |= Tag.GC

    def _listen(self, phase: str, info: dict[str, int]) -> None:
        recorder = self.recorder
        if phase == "start":
            self._began = recorder.now_ns() if recorder.slot < FIRST_GAP else 0
        elif self._began:
            add(recorder.draft, "gc_ns", recorder.now_ns() - self._began)
            self._began = 0

    callback: ClassVar[CodeType] = _listen.__code__
    """What runs as a collection begins and ends."""
