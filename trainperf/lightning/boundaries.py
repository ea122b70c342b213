"""State machine from Lightning's actions to the timeline, over (time, kind, action).

It knows no Lightning object: actions come in by name, time through the recorder's clock, so a log
of a real fit can be replayed through it.  Every method is called at the start or the stop of an
action, inside the guard.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import cast

from trainperf.core.phases import FIRST_GAP, Gap, Phase
from trainperf.lightning.actions import MOVES, Action, Role, role_of
from trainperf.loop.fit import Fit
from trainperf.recording.guard import Guard, NoBracket
from trainperf.recording.probes.device_marks import Mark
from trainperf.recording.recorder import Recorder
from trainperf.recording.timeline import DirectBracket, HookBracket, PhaseBracket


Act = Callable[[], object]
Leave = Callable[..., object]
"""Takes what `__exit__` is given, or nothing."""
Bracket = AbstractContextManager[None]

_BEFORE_STEPS = frozenset(
    {
        Role.VALIDATION_BEGINS,
        Role.VALIDATION,
        Role.SANITY_BEGINS,
        Role.SANITY_ENDS,
        Role.CHECKPOINT,
    }
)
"""What is told apart while no step is counted."""

# What runs every step uses plain names: looking up an enumeration's member takes ten times longer.
_DATA_WAIT, _FORWARD = MOVES[Role.FETCH].slot, MOVES[Role.FORWARD].slot
_BACKWARD = MOVES[Role.BACKWARD_BEGINS].slot
_FETCH_BEGINS, _FETCH_ENDS = Mark.FETCH_BEGINS, Mark.FETCH_ENDS
_FORWARD_ENDS, _BACKWARD_ENDS = Mark.FORWARD_ENDS, Mark.BACKWARD_ENDS


class Boundaries:
    """Turns actions into brackets, and brackets into phases, gaps and steps."""

    part = Fit.hooks

    def __init__(self, recorder: Recorder, guard: Guard) -> None:
        self._recorder = recorder
        self._guard = guard
        self._hooks: dict[str, HookBracket] = {}
        self.mark: Callable[[Mark], object] | None = None
        """Puts a mark into the device's queue; `None` where host and device work in step."""
        self.after_backward: Callable[[], object] | None = None
        """Called when backward has returned, before any user's hook runs."""
        self.backward_seen = False
        """Whether a backward ran since the start of the micro-batch."""
        self.backwards = False
        """Whether a backward ran in this fit."""
        self._backward_open = False
        self._around_forward = 0
        self._raw_step = False
        self.manual = False
        """Whether `training_step` runs backward and optimizers by itself."""
        self.accumulates = True
        """Whether gradients may be zeroed outside an optimizer's step.  Renew brackets after it."""
        self.counts = True
        """Whether training actions make steps.  Brackets made before a change must be renewed."""
        self.fetches_inside = False
        """Whether `training_step` takes the loader's iterator and fetches by itself."""
        self.exhausted = False
        """Whether such a `training_step` found no further batch: Lightning takes it for one."""
        self._makers: dict[Role, Callable[[Action, bool], Bracket | None]] = {
            Role.FETCH: self._fetch,
            Role.COPY: self._copy,
            Role.FORWARD: self._forward,
            Role.ZERO_GRAD: self._zero_grad,
            Role.BATCH: self._batch,
            Role.EPOCH: lambda _action, _overridden: EpochBracket(recorder),
            Role.VALIDATION_BEGINS: self._plain(self._validation_begins, None),
            Role.VALIDATION: self._plain(self._validation, None),
            Role.SANITY_BEGINS: self._plain(self._sanity_begins, None),
            Role.SANITY_ENDS: self._plain(None, self._sanity_ends),
            Role.CHECKPOINT: self._plain(
                lambda: recorder.enter_gap(MOVES[Role.CHECKPOINT].gap), recorder.leave_gap
            ),
            Role.SHUTDOWN: self._plain(self._shutdown, None),
            Role.HOOK: lambda action, _: self._around_hook(action, None, None),
            Role.LAST_HOOK: self._hook_then(None, recorder.last_hook_done),
            Role.BACKWARD_BEGINS: self._hook_then(None, self._backward_begins),
            Role.BACKWARD_ENDS: self._hook_then(self._backward_ends, None),
        }

    def bracket(self, name: str, *, overridden: bool, ours: bool = False) -> Bracket | None:
        """The bracket for an action, to be cached by its name; `None` when it means nothing.

        A hook of *ours* is told apart from the users': nobody asks how long each of them took.
        """
        action = Action.parse(name)
        role = role_of(action, overridden=overridden)
        if role is Role.NOTHING or (not self.counts and role not in _BEFORE_STEPS):
            return None
        if role not in self._makers or (ours and role is Role.HOOK):
            return PhaseBracket(self._recorder, MOVES[role].phase)
        return self._makers[role](action, overridden)

    def hooks_ns(self) -> dict[str, int]:
        """Exclusive host time of every user hook inside steps, so far."""
        return {label: hook.total_ns for label, hook in self._hooks.items() if hook.total_ns}

    def optimizer_begins(self) -> None:
        """An optimizer's own hook, in manual optimization: Lightning need not know of the step."""
        self._raw_step = self._recorder.slot == Phase.FORWARD
        if self._raw_step:
            self._recorder.enter(Phase.OPTIMIZER)

    def optimizer_ends(self) -> None:
        """The end of the step that `optimizer_begins` announced."""
        if self._raw_step:
            self._recorder.leave()
            self._raw_step = False

    # -- making brackets ----------------------------------------------------------------------

    def _plain(
        self, enter: Act | None, leave: Act | None
    ) -> Callable[[Action, bool], Bracket | None]:
        bracket = self._guard.bracket(self.part, enter, leave)
        return lambda _action, _overridden: bracket

    def _hook_then(
        self, before: Act | None, after: Leave | None
    ) -> Callable[[Action, bool], Bracket | None]:
        """A bracket that means something and may have a user's hook inside.

        Unguarded: what it calls of others is guarded by itself.
        """

        def make(action: Action, overridden: bool) -> Bracket:  # noqa: FBT001 a table of makers
            if overridden:
                return self._around_hook(action, before, after)
            return _direct(before, after)

        return make

    def _around_hook(self, action: Action, before: Act | None, after: Leave | None) -> Bracket:
        hook = self._hooks.setdefault(
            action.label, HookBracket(self._recorder, MOVES[Role.HOOK].phase)
        )
        if before is None and after is None:
            return hook

        def enter() -> None:
            if before is not None:
                before()
            hook.__enter__()

        def leave() -> None:
            hook.__exit__(None, None, None)
            if after is not None:
                after()

        return self._guard.bracket(self.part, enter, leave)

    def _fetch(self, action: Action, overridden: bool) -> Bracket | None:  # noqa: FBT001 a table
        del action, overridden
        if self.mark is None and not self.fetches_inside:
            fetched = PhaseBracket(self._recorder, MOVES[Role.FETCH].phase).__exit__
            return _direct(self._asks_for_batch, fetched)
        return self._guard.bracket(self.part, self._fetch_begins, self._fetch_ends)

    def _copy(self, action: Action, overridden: bool) -> Bracket | None:  # noqa: FBT001 a table
        del action, overridden
        if self.mark is None:
            return None
        begins, ends = self._puts(Mark.COPY_BEGINS), self._puts(Mark.COPY_ENDS)
        return self._guard.bracket(self.part, begins, ends)

    def _forward(self, action: Action, overridden: bool) -> Bracket | None:  # noqa: FBT001 a table
        del action, overridden
        bracket: Bracket = (
            PhaseBracket(self._recorder, MOVES[Role.FORWARD].phase)
            if self.mark is None and not self.manual
            else self._guard.bracket(self.part, self._forward_begins, self._forward_ends)
        )
        return UntilExhausted(bracket, self._exhausts) if self.fetches_inside else bracket

    def _batch(self, action: Action, overridden: bool) -> Bracket | None:  # noqa: FBT001 a table
        del action, overridden
        if not self.fetches_inside:
            return None
        return self._guard.bracket(self.part, self._micro_batch_begins, None)

    def _zero_grad(self, action: Action, overridden: bool) -> Bracket | None:  # noqa: FBT001 a table
        del action, overridden
        # Otherwise Lightning's closure does it, which the optimizer calls inside its own bracket.
        bracket = PhaseBracket(self._recorder, MOVES[Role.ZERO_GRAD].phase)
        return bracket if self.accumulates else None

    def _puts(self, mark: Mark) -> Callable[[], object]:
        def put() -> None:
            if self.mark is not None and self._recorder.ground < FIRST_GAP:
                self.mark(mark)

        return put

    # -- what actions mean --------------------------------------------------------------------

    def _exhausts(self, exhausted: bool) -> None:  # noqa: FBT001 told by a bracket
        self.exhausted = exhausted

    def _asks_for_batch(self) -> None:
        self.backward_seen = self._backward_open = False
        self._recorder.fetch()

    def _fetch_begins(self) -> None:
        if not self.fetches_inside:
            self._micro_batch_begins()
        if self.mark is not None:
            self.mark(_FETCH_BEGINS)
        self._recorder.enter(_DATA_WAIT)

    def _fetch_ends(self) -> None:
        self._recorder.leave()
        if self.mark is not None:
            self.mark(_FETCH_ENDS)

    def _micro_batch_begins(self) -> None:
        self._recorder.boundary()
        self.backward_seen = self._backward_open = False

    def _forward_begins(self) -> None:
        self._around_forward = self._recorder.depth
        self._recorder.enter(_FORWARD)

    def _forward_ends(self) -> None:
        # In manual optimization an optimizer's step may have begun that never ended.
        self._recorder.unwind(self._around_forward)
        if self.mark is not None:
            self.mark(_FORWARD_ENDS)

    def _backward_begins(self, *_: object) -> None:
        self._recorder.enter(_BACKWARD)
        self._backward_open = True

    def _backward_ends(self) -> None:
        if not self._backward_open:
            return  # an earlier callback's hook ended it
        self._backward_open = False
        if self.mark is not None:
            self.mark(_BACKWARD_ENDS)
        if self.after_backward is not None:
            self.after_backward()
        self._recorder.leave()
        self.backward_seen = self.backwards = True

    def _validation_begins(self) -> None:
        if self._recorder.ground < FIRST_GAP:
            self._recorder.rest(MOVES[Role.VALIDATION_BEGINS].slot)

    def _validation(self) -> None:
        ground = self._recorder.ground
        if ground not in (Gap.VALIDATION, Gap.SANITY_CHECK):
            # Inside a group of micro-batches nothing announces that the loader is built.
            self._recorder.rest(MOVES[Role.VALIDATION].slot, since_last=ground < FIRST_GAP)

    def _sanity_begins(self) -> None:
        if self._recorder.ground == Gap.STARTUP:
            self._recorder.rest(MOVES[Role.SANITY_BEGINS].slot)

    def _sanity_ends(self) -> None:
        if self._recorder.ground == Gap.SANITY_CHECK:
            self._recorder.rest(MOVES[Role.SANITY_ENDS].slot)

    def _shutdown(self) -> None:
        if self._recorder.ground != Gap.SHUTDOWN:
            self._recorder.rest(MOVES[Role.SHUTDOWN].slot)


def _direct(enter: Act | None, leave: Leave | None) -> Bracket:
    bracket = DirectBracket(enter or NoBracket.__enter__, leave or NoBracket.__exit__)
    return cast("Bracket", bracket)


class EpochBracket:
    """Around an epoch; one that an exception ends has no boundary to the next.

    Needs no guard, as `PhaseBracket`.
    """

    __slots__ = ("_recorder",)

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._recorder.epoch_ended()
        else:
            self._recorder.rest(Gap.SHUTDOWN)


class UntilExhausted:
    """Around a `training_step` that fetches by itself, and may find that there is no more."""

    __slots__ = ("_forward", "_tell")

    def __init__(
        self, forward: AbstractContextManager[None], tell: Callable[[bool], object]
    ) -> None:
        self._forward = forward
        self._tell = tell

    def __enter__(self) -> None:
        self._forward.__enter__()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._tell(kind is StopIteration)
        self._forward.__exit__(kind, error, trace)
