"""State machine from Lightning's actions to the timeline, over (time, kind, action).

It knows no Lightning object: actions come in by name, time through the recorder's clock, so a log
of a real fit can be replayed through it.  Every method is called at the start or the stop of an
action, inside the guard.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial
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

_EVERYWHERE = frozenset({*Phase, *Gap})
_FROM: Mapping[Role, frozenset[Phase | Gap]] = {
    Role.VALIDATION_BEGINS: frozenset(Phase),
    Role.VALIDATION: _EVERYWHERE - {Gap.VALIDATION, Gap.SANITY_CHECK},
    Role.SANITY_BEGINS: frozenset({Gap.STARTUP}),
    Role.SHUTDOWN: _EVERYWHERE - {Gap.SHUTDOWN},
}
"""What may be under everything else when the gap of an action begins with it."""

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
        self._around_hooks: dict[Role, tuple[Act | None, Leave | None]] = {
            Role.HOOK: (None, None),
            Role.LAST_HOOK: (None, recorder.last_hook_done),
            Role.BACKWARD_BEGINS: (None, self._backward_begins),
            Role.BACKWARD_ENDS: (self._backward_ends, None),
        }
        """What happens before and after a hook that may be a user's, by the role of its action."""
        self._guarded: dict[Role, tuple[Act | None, Act | None]] = {
            Role.COPY: (self._puts(Mark.COPY_BEGINS), self._puts(Mark.COPY_ENDS)),
            Role.BATCH: (self._micro_batch_begins, None),
            Role.CHECKPOINT: (
                partial(recorder.enter_gap, MOVES[Role.CHECKPOINT].gap),
                recorder.leave_gap,
            ),
            Role.SANITY_ENDS: (None, partial(self._rest, Role.SANITY_ENDS)),
            **{role: (partial(self._rest, role), None) for role in _FROM},
        }
        """What happens at the beginning and at the end of the other actions."""

    def bracket(self, name: str, *, overridden: bool, ours: bool = False) -> Bracket | None:
        """The bracket for an action, to be cached by its name; `None` when it means nothing.

        A hook of *ours* is told apart from the users': nobody asks how long each of them took.
        """
        action = Action.parse(name)
        role = role_of(action, overridden=overridden)
        if role in self._meaningless() or (not self.counts and role not in _BEFORE_STEPS):
            return None
        if role in self._around_hooks and not (ours and role is Role.HOOK):
            before, after = self._around_hooks[role]
            # Unguarded: what these call of others is guarded by itself.
            return (
                self._around_hook(action, before, after) if overridden else _direct(before, after)
            )
        if role in self._guarded:
            return self._guard.bracket(self.part, *self._guarded[role])
        own = {Role.FETCH: self._fetch, Role.FORWARD: self._forward, Role.EPOCH: self._epoch}
        if role in own:
            return own[role]()
        return PhaseBracket(self._recorder, MOVES[role].phase)

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

    def _meaningless(self) -> set[Role]:
        """Roles that mean nothing in this loop."""
        without = {
            Role.NOTHING: True,
            Role.COPY: self.mark is None,
            Role.BATCH: not self.fetches_inside,
            # Otherwise Lightning's closure does it, which the optimizer calls inside its bracket.
            Role.ZERO_GRAD: not self.accumulates,
        }
        return {role for role, holds in without.items() if holds}

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

    def _fetch(self) -> Bracket:
        if self.mark is None and not self.fetches_inside:
            fetched = PhaseBracket(self._recorder, MOVES[Role.FETCH].phase).__exit__
            return _direct(self._asks_for_batch, fetched)
        return self._guard.bracket(self.part, self._fetch_begins, self._fetch_ends)

    def _forward(self) -> Bracket:
        bracket: Bracket = (
            PhaseBracket(self._recorder, MOVES[Role.FORWARD].phase)
            if self.mark is None and not self.manual
            else self._guard.bracket(self.part, self._forward_begins, self._forward_ends)
        )
        return UntilExhausted(bracket, self._exhausts) if self.fetches_inside else bracket

    def _epoch(self) -> Bracket:
        return EpochBracket(self._recorder)

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

    def _rest(self, role: Role) -> None:
        """A gap begins, unless it goes on already or another one holds it."""
        ground = self._recorder.ground
        if ground in _FROM.get(role, (Gap.SANITY_CHECK,)):
            # Inside a group of micro-batches nothing announces that the loader is built.
            unannounced = role is Role.VALIDATION and ground < FIRST_GAP
            self._recorder.rest(MOVES[role].slot, since_last=unannounced)


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
