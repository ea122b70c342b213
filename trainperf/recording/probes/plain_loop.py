"""Facts of a plain loop that only show while it runs: its autocast and its accumulation."""

from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

import torch

from trainperf.core.phases import Phase, Tag
from trainperf.core.readings import phase_reading
from trainperf.core.steps.records import Scalar
from trainperf.recording.probes.base import Probe
from trainperf.recording.process_objects import UntracedHook, nothing
from trainperf.recording.recorder import Draft, Recorder
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
        split = _SPLIT if trains else _SPLIT[:1]
        self._hook: torch.utils.hooks.RemovableHandle | None = None
        self._autocast: str | None = None
        self._micro_batches: Counter[int] = Counter()
        # A host's copy to itself is nothing; one to a device is part of the step, bracketed or not.
        self._unseen: set[Phase] = {*split} if device == "cpu" else {Phase.H2D, *split}
        self._ran = False

    def attach(self, recorder: Recorder) -> None:
        """Wait for the first forward."""
        super().attach(recorder)
        module = self._module
        if isinstance(module, torch.nn.Module) and not is_compiled(module):
            self._hook = module.register_forward_pre_hook(FirstForwardHook(self.shield(self._look)))

    def detach(self) -> None:
        """Leave no hook behind."""
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def resolve(self, drafts: Sequence[Draft]) -> None:
        """Count the micro-batches of complete groups, and see what is bracketed.  Every flush."""
        self._ran = self._ran or bool(drafts)
        for draft in drafts:
            if not self._unseen:
                break
            self._unseen -= {
                phase for phase in self._unseen if draft.host_ns and draft.host_ns[phase]
            }
        self._micro_batches.update(
            draft.micro_batches for draft in drafts if not draft.tags & _PARTIAL_GROUP
        )

    def config(self) -> dict[str, Scalar]:
        """What is known by now, under the names that Lightning's configuration has."""
        facts: dict[str, Scalar] = {}
        if self._autocast is not None:
            facts["autocast"] = self._autocast
        if self._micro_batches:
            fewest, most = min(self._micro_batches), max(self._micro_batches)
            facts["accumulate_grad_batches"] = most if fewest == most else f"{fewest} to {most}"
        return facts

    def reasons(self) -> dict[str, str]:
        """Why a phase has no time: it is in `other`, because nothing brackets it."""
        if not self._ran:
            return {}
        return {
            phase_reading(phase.label): f'not measured: nothing ran in phase("{phase.label}")'
            for phase in sorted(self._unseen)
        }

    def _look(self, *_: object) -> None:
        self.detach()
        on = torch.is_autocast_enabled(self._device)
        self._autocast = type_name(torch.get_autocast_dtype(self._device)) if on else "off"


class FirstForwardHook(UntracedHook):
    """One that hears of the first forward that runs as it is written, and of no other."""

    __slots__ = ()

    def __call__(self, *given: object) -> None:
        """Look, the first time."""
        if not torch.compiler.is_compiling():
            act, self.act = self.act, nothing
            act(*given)


def is_compiled(module: torch.nn.Module) -> bool:
    """Whether it runs as compiled code, by `torch.compile` or by its own `compile()`."""
    return hasattr(module, "_orig_mod") or module._compiled_call_impl is not None  # noqa: SLF001
