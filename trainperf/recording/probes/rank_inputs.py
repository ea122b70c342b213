"""Inputs of ranks that train together, as numbers that their files can be compared by.

Each rank holds the whole model, so two that are given the same do the same work.

| fact | what it is |
|---|---|
| `training_inputs` | a number for each of three calls of the model in steps, after the third step |
| `validation_inputs` | the same of the first calls in validations, of three at most |

Nothing is learned of numbers that are not finite, nor of one batch that is trained on again and
again, as a benchmark does.
"""

from collections.abc import Mapping, Sequence
from math import isfinite, nan
from typing import ClassVar

import torch
from torch import Tensor, nn

from trainperf.accelerators import Accelerator
from trainperf.audit.nested import tensors
from trainperf.core.phases import FIRST_GAP, Gap, Tag
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.compilation import graphs_built
from trainperf.recording.probes.fingerprints import fingerprints, plain
from trainperf.recording.probes.frozen import FIRST_STEP
from trainperf.recording.process_objects import is_compiled
from trainperf.recording.recorder import Draft


CALLS = 3
"""So many are looked at, of each kind."""


class RankInputsProbe(Probe):
    """Hears a few calls, where nothing is compiled; the numbers stay on their device until the end.

    As a call returns: from outside, a validation is noticed amid its first call.

    Args:
        modules: Those inside DDP's wrappers: a validation may call them without these.
        accelerator: Inside a capture of its graphs nothing is looked at.
    """

    name: ClassVar[str] = "rank inputs"
    reads_device = True

    def __init__(self, modules: Sequence[nn.Module], accelerator: Accelerator) -> None:
        self._modules, self._accelerator = modules, accelerator
        self._training: list[Tensor] = []
        self._validation: list[Tensor] = []
        self._enough = False
        """Whether steps have to be heard no longer."""

    def close(self, draft: Draft) -> None:
        """Hear the steps after the third, until there is enough of them.  Runs every step."""
        if draft.index == FIRST_STEP or self._enough:
            self._enough = False
            self.gap(begins=False)

    def gap(self, begins: bool) -> None:  # noqa: FBT001 two moments of one thing
        """Hear what comes, unless there is enough of it."""
        self.detach()
        pauses = begins or self.recorder.slot >= FIRST_GAP
        wanted = len(self._validation if pauses else self._training) < CALLS
        compiled = graphs_built() or any(map(is_compiled, self._modules))
        if wanted and self.recorder.index >= FIRST_STEP and not compiled:
            for module in self._modules:
                self.hear(module.register_forward_hook, self._look, with_kwargs=True)

    def ended(self, reason: str) -> None:
        """Read what was kept, waiting once."""
        kept = self._training + self._validation
        numbers = torch.stack([each.to(kept[0].device) for each in kept]).tolist() if kept else []
        training, validation = numbers[: len(self._training)], numbers[len(self._training) :]
        for fact, of_calls, wanted in (
            ("training_inputs", training, len(training) == CALLS and len(set(training)) > 1),
            ("validation_inputs", validation, validation),
        ):
            if wanted and all(map(isfinite, of_calls)):
                self.learned[fact] = " ".join(f"{number:.9g}" for number in of_calls)

    def _look(
        self, _: object, args: tuple[object, ...], kwargs: Mapping[str, object], __: object
    ) -> None:
        slot, draft = self.recorder.slot, self.recorder.draft
        in_step = slot < FIRST_GAP
        kept = self._training if in_step else self._validation
        if len(kept) == CALLS or not (in_step or slot == Gap.VALIDATION):
            return
        # An audit would take what is computed here for the model's.
        audited = draft is not None and draft.tags & Tag.AUDITED
        if audited or self._accelerator.is_capturing():
            return
        given = [tensor for tensor in tensors((args, kwargs)) if tensor.ndim]
        # What is on another device would be waited for.
        rows = [
            each for each in given if len(each) == len(given[0]) and each.device == given[0].device
        ]
        readable = rows and all(map(plain, rows))
        kept.append(fingerprints(rows).sum() if readable else torch.tensor(nan))
        self._enough = in_step and len(kept) == CALLS
