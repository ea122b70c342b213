"""Modules that do not learn, and whether what they are given comes back epoch after epoch.

A module none of whose weights an optimizer holds gives the same for the same: where its inputs come
back, it could be computed once.  In three steps all of them are timed, from then on those that took
a twentieth of one of these, and now and then a few numbers of each row of their input and output
are kept, on their device, until the fit is over.

| fact | what it is |
|---|---|
| `frozen_modules` | paths of those with a twentieth of a step or more, given the same rows again |
| `frozen_s` | seconds of a step, host clock, in their calls that are given nothing learned |
| `frozen_part` | share of the time in all their calls; both are means from the seventh step on |
| `frozen_slot` | the phase in which they are called |
| `frozen_again` | share of the rows looked at that had been there before, with the same result |
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.optim import Optimizer

from trainperf.accelerators import Accelerator
from trainperf.audit.nested import tensors
from trainperf.core.findings import LIMITS
from trainperf.core.machine.clocks import thread_ns
from trainperf.core.phases import FIRST_GAP, PHASES, Tag
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.compilation import graphs_built
from trainperf.recording.probes.fingerprints import fingerprints, plain
from trainperf.recording.process_objects import is_compiled, living
from trainperf.recording.recorder import Draft
from trainperf.recording.schedule import CostLimit


MOST_LOOKS = 2048
"""Kept ones: the first half of them stays, of the others the latest."""
FEWEST = 8
"""Fewer different rows that came back may be special ones, an empty text for instance."""
FIRST_STEP, TIMED = 2, 3
"""After it they are hooked: what is compiled, is compiled by then.  In so many steps all are timed:
one alone may wait for something."""


class _Frozen:
    """A module that does not learn, and what was seen of it."""

    def __init__(self, module: nn.Module, name: str, share: float) -> None:
        self.module, self.name = module, name
        self.ns = self.all_ns = self.slot = 0
        """Time of its calls that are given nothing learned, of all, and where the last one was."""
        self.matters = False
        """Whether it took enough of a step that all were timed in."""
        self.limit = CostLimit(share)
        self.looks: list[tuple[Tensor, Tensor]] = []
        """Fingerprints of the rows of its input, weights included, and of its output."""


class FrozenProbe(Probe):
    """Times modules that do not learn, and compares what they are given, where nothing is compiled.

    Args:
        optimizers: All that hold weights.
        accelerator: Inside a capture of its graphs nothing is looked at.
    """

    name: ClassVar[str] = "frozen modules"
    reads_device = True

    def __init__(self, optimizers: Sequence[Optimizer], accelerator: Accelerator) -> None:
        self._held = {
            id(weight)
            for optimizer in optimizers
            for group in optimizer.param_groups
            for weight in group["params"]
        }
        self._accelerator = accelerator
        self._inside: _Frozen | None = None

    def begin(self) -> None:
        """Look for them: no step is to wait for it."""
        self._modules = [_Frozen(*each, self.share) for each in _frozen(self._held)]

    def close(self, draft: Draft) -> None:
        """Hook them, and some steps later keep those that matter.  Runs every step."""
        self._inside = None
        number = draft.index - FIRST_STEP
        if number == 0:
            self._listen([] if graphs_built() else self._modules)
        elif 0 < number <= TIMED:
            least_ns = LIMITS.worth * sum(draft.host_ns)
            for each in self._modules:
                each.matters |= each.ns >= least_ns
                each.ns = 0
            if number == TIMED:
                self.detach()
                self._listen([each for each in self._modules if each.matters])

    def _listen(self, modules: list[_Frozen]) -> None:
        self._modules = modules
        for each in modules:
            each.ns = each.all_ns = 0
            self.hear(each.module.register_forward_pre_hook, partial(self._called, each))
            returned = partial(self._returned, each)
            self.hear(each.module.register_forward_hook, returned, with_kwargs=True)

    def ended(self, reason: str) -> None:
        """Compare what was kept."""
        again = {each: came_back(each.looks) for each in self._modules if each.looks}
        repeated = [each for each, part in again.items() if part >= LIMITS.worth]
        if repeated:
            spent_ns = sum(each.ns for each in repeated)
            self.learned.update(
                frozen_modules=", ".join(each.name for each in repeated),
                frozen_s=spent_ns / (self.recorder.index - FIRST_STEP - TIMED) / 1e9,
                frozen_part=spent_ns / sum(each.all_ns for each in repeated),
                frozen_slot=PHASES[repeated[0].slot].label,
                frozen_again=min(again[each] for each in repeated),
            )

    def _called(self, each: _Frozen, *_: object) -> None:
        """Of those inside one another the outermost counts."""
        if self._inside is None and self.recorder.slot < FIRST_GAP:
            self._inside, each.slot = each, self.recorder.recorded_slot
            self._since_ns = self.recorder.now_ns()

    def _returned(
        self,
        each: _Frozen,
        module: nn.Module,
        args: tuple[object, ...],
        kwargs: Mapping[str, object],
        output: object,
    ) -> None:
        draft, now_ns = self.recorder.draft, self.recorder.now_ns()
        if self._inside is not each or draft is None:
            return
        self._inside = None
        each.all_ns += now_ns - self._since_ns
        given = list(tensors((*args, kwargs)))
        # What the model has made changes with it: no such call could be left out.
        if any(tensor.requires_grad for tensor in given):
            return
        each.ns += now_ns - self._since_ns
        # An audit would take what is computed here for the model's.
        hidden = draft.tags & Tag.AUDITED or self._accelerator.is_capturing()
        if draft.index <= FIRST_STEP + TIMED or hidden or not each.limit.due(now_ns):
            return
        begun_ns = thread_ns()
        each.looks += look(module, given, tensors(output))
        if len(each.looks) > MOST_LOOKS:
            del each.looks[MOST_LOOKS // 2]
        each.limit.done(now_ns, thread_ns() - begun_ns)


def _frozen(held: set[int]) -> Iterator[tuple[nn.Module, str]]:
    """All modules of the process without a weight that is held, by their paths."""
    modules = list(living(nn.Module))
    inside = {id(child) for module in modules for child in module.children()}
    for root in modules:
        if id(root) in inside or any(map(is_compiled, root.modules())):
            continue
        fused = {
            id(part)
            for module in root.modules()
            if isinstance(module, (nn.TransformerEncoderLayer, nn.MultiheadAttention))
            for part in module.modules()
        }  # with a hook on any part of it, it would compute in another way
        for path, module in root.named_modules(prefix=type(root).__name__):
            weights = list(module.parameters())
            hooked = id(module) in fused or isinstance(module, torch.jit.ScriptModule)
            learns = not held.isdisjoint(map(id, weights))
            if weights and not learns and not hooked and all(map(plain, weights)):
                yield module, path


def look(
    module: nn.Module, given: Iterable[Tensor], results: Iterable[Tensor]
) -> list[tuple[Tensor, Tensor]]:
    """What is kept of a call: nothing where what it is given, or gives, has no rows to look at.

    Nor where something of it is on another device: that would be waited for.
    """
    weight = max(module.parameters(), key=Tensor.numel)
    inputs = [tensor for tensor in given if tensor.ndim]
    outputs = [each for each in results if each.ndim and inputs and len(each) == len(inputs[0])]
    all_of_them = (*inputs, *outputs, weight)
    readable = inputs and outputs and weight.ndim and all(map(plain, all_of_them))
    if not readable or {tensor.device for tensor in all_of_them} != {weight.device}:
        return []
    return [(fingerprints(inputs) + fingerprints([weight]).sum(), fingerprints(outputs))]


def came_back(looks: Sequence[tuple[Tensor, Tensor]]) -> float:
    """Share of the rows that had been there before; 0 where they gave another result then."""
    inputs, outputs = (torch.cat(prints).cpu().numpy() for prints in zip(*looks, strict=True))
    _, first, which, times = np.unique(
        inputs, return_index=True, return_inverse=True, return_counts=True
    )
    again = first[which] < np.arange(len(inputs))
    same = np.isclose(outputs, outputs[first[which]], rtol=1e-3)
    few = np.count_nonzero(times > 1) < min(FEWEST, len(times))
    unlike = np.count_nonzero(again & ~same) > LIMITS.worth * np.count_nonzero(again)
    return 0.0 if few or unlike else float(again.mean())
