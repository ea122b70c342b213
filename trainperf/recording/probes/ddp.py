"""Feeds the all-reduce tail: from the last gradient being ready to backward having returned.

One Python call per step, from a hook on the parameter whose gradient arrives last.  It runs before
DDP's own hook and leaves the user's communication hook alone.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from torch.nn.parallel import DistributedDataParallel

from trainperf.core.phases import Tag
from trainperf.core.steps.records import Scalar
from trainperf.recording.guard import Guard
from trainperf.recording.probes.base import Probe, add
from trainperf.recording.probes.last_gradient import NOT_HEARD, LastGradient
from trainperf.recording.recorder import Draft, Recorder


NO_BACKWARD = (
    'not measured: no backward was announced; bracket it with phase("backward"), or call '
    "manual_backward under Lightning"
)


class TailProbe(Probe):
    """The all-reduce tail of synchronising micro-batches, of one DDP module or of several.

    Where one backward goes through several, the last gradient of all of them counts.

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
        self._lasts: list[LastGradient] = []
        self._unsure: set[int] = set()
        """Steps of which one backward was not heard."""
        self._announced = False
        """Whether a backward was."""
        self._reductions = self._steps = self._micro_batches = 0

    def attach(self, recorder: Recorder) -> None:
        """Begin to feed *recorder*; the last parameter is not known yet."""
        super().attach(recorder)
        self._column = recorder.column("tail_ns")
        self._now_ns = recorder.now_ns
        self._lasts = [
            LastGradient(module, recorder.now_ns, self.shield, self._mark)
            for module in self._modules
        ]

    def ending(self, guard: Guard) -> Callable[[], None]:
        """What a loop calls when a backward has returned: `backward_ends` behind the *guard*.

        Nearly always one module is there, its last gradient was heard and nothing else is due:
        then no other function is called, as what little is to be done cannot fail.
        """
        ends = guard.hook(self.name, self.backward_ends)
        if len(self._lasts) > 1 or self._mark is not None:
            return ends
        (last,) = self._lasts
        guard.when_faulty(self.name, last.give_up)
        recorder, column, now_ns = self.recorder, self._column, self._now_ns
        # Not as an attribute: a module is asked for those by its own `__getattr__`, cold and slow.
        settings = vars(last.module)

        def quick() -> None:
            ready_ns = last.ready_ns
            if ready_ns < 0 or not last.left or not settings["require_forward_param_sync"]:
                ends()
                return
            tail_ns = now_ns() - ready_ns
            last.ready_ns = NOT_HEARD
            last.left -= 1
            draft = recorder.draft
            if draft is not None:
                facts = draft.facts
                facts[column] = tail_ns + (facts[column] or 0)

        return quick

    def detach(self) -> None:
        """Remove all hooks."""
        for last in self._lasts:
            last.detach()

    def backward_ends(self) -> None:
        """Take the tail of the pass that has just returned.  Runs every micro-batch."""
        now_ns = self._now_ns()
        self._announced = True
        ready_ns, reduced = NOT_HEARD, False
        for last in self._lasts:
            moment = last.ready_ns
            last.ready_ns = NOT_HEARD
            if not last.reduces:
                continue
            if moment == NOT_HEARD:
                reduced = self._not_heard(last) or reduced
                continue
            last.heard(moment)
            ready_ns = max(ready_ns, moment)
        self._reductions += reduced or ready_ns != NOT_HEARD
        draft = self.recorder.draft
        if ready_ns != NOT_HEARD and draft is not None and self._mark is None:
            add(draft, self._column, now_ns - ready_ns)

    @property
    def _reduced(self) -> int:
        """Backwards that did, also those that ended without `backward_ends`."""
        return self._reductions + sum(last.quick for last in self._lasts)

    def resolve(self, drafts: Sequence[Draft]) -> None:
        """A step of which one backward was not heard has no tail: a part of it is none."""
        self._steps += len(drafts)
        for draft in drafts:
            self._micro_batches += draft.micro_batches
            if draft.index in self._unsure:
                self._unsure.discard(draft.index)
                draft.facts[self._column] = None  # the device's marks were read before this

    def _not_heard(self, last: LastGradient) -> bool:
        """A module took no part, or its last gradient is not known: returns whether it did."""
        if not last.not_heard():
            return False
        if last.learnt:
            self.recorder.tag(Tag.AUDITED)
        if self.recorder.draft is not None:
            self._unsure.add(self.recorder.draft.index)
        return True

    def reasons(self) -> dict[str, str]:
        """Why there is no tail, where the loop announced no backward."""
        return {"tail_ns": NO_BACKWARD} if self._steps and not self._announced else {}

    def config(self) -> dict[str, Scalar]:
        """How often gradients were reduced in a step, and what DDP itself knows of its buckets."""
        if not self._steps or not self._announced:
            return {}
        return {
            "allreduces_per_step": self._reduced / self._steps,
            "micro_batches_per_step": self._micro_batches / self._steps,
            **_together([_buckets(module) for module in self._modules]),
        }


def _together(modules: Sequence[dict[str, int | None]]) -> dict[str, Scalar]:
    """Sums over the modules; `None` where one of them does not tell."""
    sums: dict[str, Scalar] = {}
    for name in modules[0]:
        values = [module[name] for module in modules]
        numbers = [value for value in values if value is not None]
        sums[name] = sum(numbers) if len(numbers) == len(values) else None
    return sums


def _buckets(module: DistributedDataParallel) -> dict[str, int | None]:
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
