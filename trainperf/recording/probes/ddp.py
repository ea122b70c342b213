"""Feeds the all-reduce tail: from all gradients being computed to backward having returned.

The autograd engine tells when the graph of a backward is computed: it calls what was queued in it,
in the order of queueing.  DDP queues its own call, in which it waits for its buckets, when the last
gradient of the module is there, so one that is queued at any other gradient comes before.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import torch
from torch.nn import Parameter
from torch.nn.parallel import DistributedDataParallel

from trainperf.core.steps.records import Scalar
from trainperf.recording.guard import Guard
from trainperf.recording.probes.base import Probe
from trainperf.recording.probes.compilation import backwards_captured
from trainperf.recording.process_objects import UntracedHook
from trainperf.recording.recorder import Draft


NO_BACKWARD = (
    'not measured: no backward was announced; bracket it with phase("backward"), or call '
    "manual_backward under Lightning"
)

NOT_TOLD = "not measured: backward is compiled with its hooks, and none told of it"

_NOT_COMPUTED = -1
"""In the place of a moment: no graph whose gradients are reduced was computed."""


class TailProbe(Probe):
    """The all-reduce tail of synchronising micro-batches, of one DDP module or of several.

    A hook on a parameter of each module queues the call: on the first, whose gradient comes late,
    so that a checkpointed layer has no graph of its own after it.  The user's communication hook is
    left alone; what it does while it is called, as compressing a bucket, is part of the computing.

    *mark*, if given, puts the moment into the device's queue; otherwise the host clock is read,
    which is right where the device is the host (gloo on a CPU).
    """

    name = "all-reduce tail"
    facts: ClassVar[tuple[str, ...]] = ("tail_ns",)

    def __init__(
        self,
        modules: Sequence[DistributedDataParallel],
        mark: Callable[[], object] | None = None,
    ) -> None:
        self._modules = modules
        self._mark = mark
        self._computed_ns = _NOT_COMPUTED
        self._unknown: set[int] = set()
        """Steps with a backward that may have reduced what no hook told of."""
        self._quiet = self._reductions = 0
        """Announced backwards of which no hook told, and those that reduced or may have."""
        self._steps = self._micro_batches = 0

    def begin(self) -> None:
        """Begin to feed *recorder*."""
        for module in self._modules:
            hook = UntracedHook(self._hook(module))
            for parameter in _told_by(module):
                handle = parameter.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
                self.undo.callback(handle.remove)

    def _hook(self, module: DistributedDataParallel) -> Callable[[Parameter], None]:
        # As DDP does: there is no public way.
        queue = torch.autograd.Variable._execution_engine.queue_callback  # noqa: SLF001 see above
        now_ns, mark = self.recorder.now_ns, self._mark
        # Not as an attribute: a module is asked for those by its own `__getattr__`, cold and slow.
        settings = vars(module)

        def computed() -> None:
            if self._computed_ns < 0:  # else called again, after DDP has waited for another module
                self._computed_ns = now_ns()
                if mark is not None:
                    mark()

        call = computed if mark is None else self.shield(computed)

        def arrived(_parameter: Parameter) -> None:
            """Runs every micro-batch; nothing in it can fail."""
            self._computed_ns = _NOT_COMPUTED
            # What forward has prepared: a `no_sync()` around backward alone changes nothing.
            if settings["require_forward_param_sync"]:
                queue(call)

        return arrived

    def ending(self, guard: Guard) -> Callable[[], None]:
        """What a loop calls when a backward has returned.  Runs every micro-batch.

        What a tail is taken with cannot fail; the rest is behind the *guard*.
        """
        recorder, now_ns = self.recorder, self.recorder.now_ns
        on_host, not_told = self._mark is None, guard.hook(self.name, self._not_told)

        def ends() -> None:
            computed_ns = self._computed_ns
            if computed_ns < 0:
                not_told()
                return
            tail_ns = now_ns() - computed_ns
            self._computed_ns = _NOT_COMPUTED
            self._reductions += 1
            draft = recorder.draft
            if draft is not None and on_host:
                facts = draft.facts
                facts["tail_ns"] = tail_ns + (facts["tail_ns"] or 0)

        return ends

    def _not_told(self) -> None:
        """Nothing was reduced, unless a module has left out every parameter with a hook."""
        self._quiet += 1
        draft = self.recorder.draft
        if any(m.require_forward_param_sync and _leaves_out(m) for m in self._modules):
            self._reductions += 1
            if draft is not None:
                self._unknown.add(draft.index)

    def resolve(self, drafts: Sequence[Draft]) -> None:
        """A step of which no hook told one backward has no tail: a part of it is none."""
        for draft in drafts:
            if draft.host_ns:  # else it goes on, and comes again
                self._steps += 1
                self._micro_batches += draft.micro_batches
                if draft.index in self._unknown:
                    self._unknown.discard(draft.index)
                    draft.facts["tail_ns"] = None  # the device's marks were read before this

    def reasons(self) -> dict[str, str]:
        """Why there is no tail, where the loop announced no backward."""
        if not self._steps or self._reductions:
            return {}
        if not self._quiet:
            return {"tail_ns": NO_BACKWARD}
        return {"tail_ns": NOT_TOLD} if backwards_captured() else {}

    def config(self) -> dict[str, Scalar]:
        """How often gradients were reduced in a step, and what DDP itself knows of its buckets."""
        if not self._steps or self.reasons():
            return {}
        buckets, unused = zip(*map(_buckets, self._modules), strict=True)
        return {
            "allreduces_per_step": self._reductions / self._steps,
            "micro_batches_per_step": self._micro_batches / self._steps,
            "ddp_buckets": _total(buckets),
            "ddp_unused_bytes": _total(unused),
        }


def _leaves_out(module: DistributedDataParallel) -> bool:
    """Whether a backward may reduce without a gradient of some parameters."""
    return bool(module.find_unused_parameters or module.static_graph)


def _told_by(module: DistributedDataParallel) -> list[Parameter]:
    """The parameters with a hook: the first, and where it may be left out the last one too."""
    trained = [
        parameter
        for name, parameter in module.module.named_parameters()
        if parameter.requires_grad and name not in module.parameters_to_ignore
    ]
    return [*trained[:1], *(trained[1:][-1:] if _leaves_out(module) else ())]


def _total(numbers: Sequence[int | None]) -> int | None:
    """Over the modules; `None` where one of them does not tell."""
    return None if None in numbers else sum(filter(None, numbers))


def _buckets(module: DistributedDataParallel) -> tuple[int | None, int | None]:
    """The number of its buckets, and the bytes of parameters without a gradient.

    The latter is `None` unless DDP was told to look for them.  Torch 2.6 adds it up over steps:
    there only whether it is 0 means something.

    From DDP's own statistics, read without waiting: filled in its first ten steps, then in every
    hundredth.  They are not a public interface: where they are gone nothing is said.
    """
    data: Mapping[str, object] = getattr(module, "_get_ddp_logging_data", dict)()
    sizes = str(data.get("rebuilt_bucket_sizes") or data.get("bucket_sizes") or "")
    unused = data.get("unused_parameter_size")
    looked = module.find_unused_parameters and isinstance(unused, int)
    return len(sizes.split(",")) if sizes else None, int(str(unused)) if looked else None
