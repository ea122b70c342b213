"""Facts of a plain loop that only show while it runs: its autocast and its accumulation."""

from collections.abc import Sequence
from typing import ClassVar

import torch

from trainperf.core.phases import Phase, Tag
from trainperf.core.readings import phase_reading
from trainperf.recording.probes.base import Probe
from trainperf.recording.process_objects import is_compiled
from trainperf.recording.recorder import Draft
from trainperf.recording.run_identity import type_name


_PARTIAL_GROUP = int(Tag.PARTIAL_GROUP)

_SPLIT = (Phase.FORWARD, Phase.BACKWARD, Phase.OPTIMIZER)
"""What only the user can tell apart; a loop that does not has no such times, rather than zeros."""


class PlainLoopProbe(Probe):
    """Learns once what a framework would have told; nothing of it runs every step.

    Autocast is looked at in the first forward of the module, from outside: one that the module
    enters by itself is not seen.  A compiled module is left alone: a hook would compile it anew.
    """

    name: ClassVar[str] = "plain loop"

    def __init__(self, module: object, device: str, *, trains: bool = True) -> None:
        self._module = module
        self._device = device
        self._micro_batches: set[int] = set()
        split = _SPLIT if trains else _SPLIT[:1]
        # A host's copy to itself is nothing; one to a device is part of the step, bracketed or not.
        self._unseen: set[Phase] = {*split} if device == "cpu" else {Phase.H2D, *split}
        self._ran = False
        """Whether a step's phases are known."""

    def begin(self) -> None:
        """Wait for the first forward."""
        module = self._module
        if isinstance(module, torch.nn.Module) and not is_compiled(module):
            self.hear(module.register_forward_pre_hook, self._look)

    def resolve(self, drafts: Sequence[Draft]) -> None:
        """Count the micro-batches of complete groups, and see what is bracketed.  Every flush."""
        self._ran |= bool(drafts)
        spent_ns = [draft.host_ns for draft in drafts if draft.host_ns]
        self._unseen = {phase for phase in self._unseen if not any(ns[phase] for ns in spent_ns)}
        self._micro_batches |= {
            draft.micro_batches for draft in drafts if not draft.tags & _PARTIAL_GROUP
        }
        if self._micro_batches:  # under the name that Lightning's configuration has
            fewest, most = min(self._micro_batches), max(self._micro_batches)
            self.learned["accumulate_grad_batches"] = (
                most if fewest == most else f"{fewest} to {most}"
            )

    def reasons(self) -> dict[str, str]:
        """Why a phase has no time: it is in `other`, because nothing brackets it."""
        return {
            phase_reading(phase.label): f'not measured: nothing ran in phase("{phase.label}")'
            for phase in sorted(self._unseen)
            if self._ran
        }

    def _look(self, *_: object) -> None:
        self.detach()
        on = torch.is_autocast_enabled(self._device)
        self.learned["autocast"] = (
            type_name(torch.get_autocast_dtype(self._device)) if on else "off"
        )
