"""Feeds the all-reduce tail: from the last gradient being ready to backward having returned.

One Python call per step, from a hook on the parameter whose gradient arrives last.  It runs before
DDP's own hook and leaves the user's communication hook alone.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.utils.hooks import RemovableHandle

from trainperf.core.phases import Tag
from trainperf.core.steps.records import Scalar
from trainperf.recording.probes.base import Probe, add
from trainperf.recording.probes.device_marks import Mark
from trainperf.recording.recorder import Draft, Recorder


RELEARN_EVERY = 1000
"""Backward passes after which the last parameter is looked for again."""

_FIRST_LEARNT = 2
"""DDP rebuilds its buckets after the first backward, so the order is learnt on the second."""


class TailProbe(Probe):
    """The all-reduce tail of synchronising micro-batches of one DDP module.

    *mark*, if given, puts the moment into the device's queue; otherwise the host clock is read,
    which is right where the device is the host (gloo on a CPU).
    """

    name = "all-reduce tail"
    facts: ClassVar[tuple[str, ...]] = ("tail_ns",)

    def __init__(
        self, module: DistributedDataParallel, mark: Callable[[], object] | None = None
    ) -> None:
        self._module = module
        self._mark = mark
        self._handles: list[RemovableHandle] = []
        self._last: torch.nn.Parameter | None = None
        self._ready_ns = 0
        self._synchronizes = self._fired = self._learning = False
        self._silent = False
        self._passes = self._steps = self._micro_batches = 0
        self._learn_at = _FIRST_LEARNT
        self._patience = 1

    def attach(self, recorder: Recorder) -> None:
        """Begin to feed *recorder*; the last parameter is not known yet."""
        super().attach(recorder)
        self._column = recorder.column("tail_ns")

    def detach(self) -> None:
        """Remove all hooks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def backward_begins(self) -> None:
        """Look for the last parameter when it is time to.  Runs every micro-batch."""
        self._fired = False
        # What the last forward has prepared: a `no_sync()` around backward alone changes nothing.
        self._synchronizes = self._module.require_forward_param_sync
        if not self._synchronizes:
            return
        self._passes += 1
        if self._passes >= self._learn_at:
            self._learn()

    def backward_ends(self) -> None:
        """Take the tail of the pass that just returned.  Runs every micro-batch."""
        draft = self.recorder.draft
        if draft is None or not self._synchronizes:
            return
        self._synchronizes = False
        if self._learning:
            self._learnt()
        elif not self._fired:
            self._silent = True
            self._relearn_soon()
        elif self._mark is None:
            add(draft, self._column, self.recorder.now_ns() - self._ready_ns)

    def close(self, draft: Draft) -> None:
        """A step of which one backward was not heard has no tail: a part of it is none."""
        self._steps += 1
        self._micro_batches += draft.micro_batches
        if self._silent:
            self._silent = False
            draft.facts[self._column] = None
            draft.marks = [pair for pair in draft.marks if pair[0] != Mark.LAST_GRADIENT]

    def config(self) -> dict[str, Scalar]:
        """How often gradients were reduced in a step, and what DDP itself knows of its buckets."""
        if not self._steps:
            return {}
        counted: dict[str, Scalar] = {
            "allreduces_per_step": self._passes / self._steps,
            "micro_batches_per_step": self._micro_batches / self._steps,
        }
        return {**counted, **_buckets(self._module)}

    def _relearn_soon(self) -> None:
        """The hook was silent: an unused parameter, or compiled anew.  Ever later, if in vain."""
        if self._learn_at > self._passes + self._patience:
            self._learn_at = self._passes + self._patience
            self._patience = min(2 * self._patience, RELEARN_EVERY)

    def _learn(self) -> None:
        self.detach()
        self._learning = True
        self.recorder.tag(Tag.AUDITED)
        self._hook([p for p in self._module.parameters() if p.requires_grad])

    def _learnt(self) -> None:
        self._learning = False
        self._learn_at = self._passes + RELEARN_EVERY
        self.detach()
        if self._last is not None:
            self._hook([self._last])

    def _hook(self, parameters: list[torch.nn.Parameter]) -> None:
        arrived = self.shield(self._arrived)
        self._handles = [
            parameter.register_post_accumulate_grad_hook(arrived)  # type: ignore[no-untyped-call]
            for parameter in parameters
        ]

    def _arrived(self, parameter: torch.nn.Parameter) -> None:
        if not self._synchronizes:
            return
        if self._learning:
            self._last = parameter  # no mark: hundreds of them would fill the pool of events
            return
        self._fired = True
        if self._mark is not None:
            self._mark()
        else:
            self._ready_ns = self.recorder.now_ns()


def _buckets(module: DistributedDataParallel) -> dict[str, Scalar]:
    """`ddp_buckets`, the number of them, and `ddp_unused_bytes`, parameters without a gradient.

    The latter is `None` unless DDP was told to look for them.  Torch 2.6 adds it up over steps:
    there only whether it is 0 means something.

    From DDP's own statistics, read without waiting: filled in its first ten steps, then in every
    hundredth.  They are not a public interface: where they are gone nothing is said.
    """
    read = getattr(module, "_get_ddp_logging_data", None)
    data: Mapping[str, object] = read() if read is not None else {}
    sizes = str(data.get("rebuilt_bucket_sizes") or data.get("bucket_sizes") or "")
    unused = data.get("unused_parameter_size")
    looked = module.find_unused_parameters and isinstance(unused, int)
    return {
        "ddp_buckets": len(sizes.split(",")) if sizes else None,
        "ddp_unused_bytes": int(str(unused)) if looked else None,
    }
