"""State machine from Lightning's actions to the timeline, over (time, kind, action).

It knows no Lightning object: actions come in by name, time through the recorder's clock, so a log
of a real fit can be replayed through it.  Every method is called at the start or the stop of an
action, inside the guard.
"""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import partial

from trainperf.core.phases import FIRST_GAP, Gap, Phase
from trainperf.lightning.actions import MOVES, Action, Role, role_of
from trainperf.loop.fit import Fit
from trainperf.recording.probes.device_marks import Mark
from trainperf.recording.timeline import NO_BRACKET, DirectBracket, HookBracket


Act = Callable[..., object]
"""Called before or after an action; the latter is given what `__exit__` is."""
Bracket = AbstractContextManager[None]

_BEFORE_STEPS = frozenset(
    {
        "validation_begins",
        "validation",
        "sanity_begins",
        "sanity_ends",
        "checkpoint",
    }
)
"""What is told apart while no step is counted."""

_EVERYWHERE = frozenset({*Phase, *Gap})
_FROM: Mapping[Role, frozenset[Phase | Gap]] = {
    "validation_begins": frozenset(Phase),
    "validation": _EVERYWHERE - {Gap.VALIDATION, Gap.SANITY_CHECK},
    "sanity_begins": frozenset({Gap.STARTUP}),
    "shutdown": _EVERYWHERE - {Gap.SHUTDOWN},
}
"""What may be under everything else when the gap of an action begins with it."""

# What runs every step uses plain names: looking up an enumeration's member takes ten times longer.
_FORWARD, _BACKWARD = MOVES["forward"].slot, MOVES["backward_begins"].slot
_BEFORE, _AFTER = NO_BRACKET.__enter__, NO_BRACKET.__exit__


class Boundaries:
    """Turns actions into brackets, and brackets into phases, gaps and steps.

    Args:
        fit: Whose they are.
    """

    def __init__(self, fit: Fit) -> None:
        self._fit, self._recorder, self._guard = fit, fit.recorder, fit.guard
        self._hooks: dict[str, HookBracket] = {}
        self.backward_seen = False
        """Whether a backward ran in the micro-batch; whoever ends that takes it back."""
        self.backwards = False
        """Whether a backward ran in this fit."""
        self._backward_open = False
        self._around_forward = 0
        self._raw_step = False
        self.updates = 0
        """Updates that the optimizers' own hooks have told of."""
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
        recorder = self._recorder
        self._around_hooks: dict[Role, tuple[Act, Act]] = {
            "hook": (_BEFORE, _AFTER),
            "last_hook": (_BEFORE, recorder.last_hook_done),
            "backward_begins": (_BEFORE, self._backward_begins),
            "backward_ends": (self._backward_ends, _AFTER),
            "epoch": (_BEFORE, self._epoch_ends),
        }
        """What happens before and after a hook that may be a user's, or an epoch, by the role."""
        self._guarded: dict[Role, tuple[Act | None, Act | None]] = {
            "copy": (
                partial(self._put, Mark.COPY_BEGINS),
                partial(self._put, Mark.COPY_ENDS),
            ),
            "batch": (self._batch_begins, None),
            "checkpoint": (
                partial(recorder.enter_gap, Gap.CHECKPOINT),
                recorder.leave,
            ),
            "sanity_ends": (None, partial(self._rest, "sanity_ends")),
            **{role: (partial(self._rest, role), None) for role in _FROM},
        }
        """What happens at the beginning and at the end of the other actions."""

    def bracket(self, name: str, *, overridden: bool, ours: bool = False) -> Bracket | None:
        """The bracket for an action, to be cached by its name; `None` when it means nothing.

        A hook of *ours* is told apart from the users': nobody asks how long each of them took.
        """
        action = Action.parse(name)
        role = role_of(action, overridden=overridden)
        if self._is_meaningless(role):
            return None
        if role in self._around_hooks and not (ours and role == "hook"):
            before, after = self._around_hooks[role]
            # Unguarded: what these call of others is guarded by itself.
            return (
                self._around_hook(action, before, after)
                if overridden
                else DirectBracket(before, after)
            )
        if role in self._guarded:
            return self._guard.bracket(Fit.hooks, *self._guarded[role])
        if role == "fetch":
            return self._fetch()
        if role == "forward":
            return self._forward()
        return DirectBracket(partial(self._recorder.enter, MOVES[role].slot), self._recorder.leave)

    def hooks_ns(self) -> dict[str, int]:
        """Exclusive host time of every user hook inside steps, so far."""
        return {label: hook.total_ns for label, hook in self._hooks.items() if hook.total_ns}

    def optimizer_begins(self, *_: object) -> None:
        """An optimizer's own hook, in manual optimization: Lightning need not know of the step."""
        self._raw_step = self._recorder.slot == Phase.FORWARD
        if self._raw_step:
            self._recorder.enter(Phase.OPTIMIZER)

    def optimizer_ends(self, *_: object) -> None:
        """The end of the step that `optimizer_begins` announced."""
        self.updates += 1
        if self._raw_step:
            self._recorder.leave()

    # -- making brackets ----------------------------------------------------------------------

    def _is_meaningless(self, role: Role) -> bool:
        """Whether it means nothing in this loop, or nothing yet."""
        without = {
            "nothing": True,
            "copy": self._fit.chosen.marks is None,
            "batch": not self.fetches_inside and self._fit.audit is None,
            # Otherwise Lightning's closure does it, which the optimizer calls inside its bracket.
            "zero_grad": not self.accumulates,
        }
        return without.get(role, False) or (not self.counts and role not in _BEFORE_STEPS)

    def _around_hook(self, action: Action, before: Act, after: Act) -> Bracket:
        hook = self._hooks.setdefault(action.label, HookBracket(self._recorder, Phase.CALLBACKS))
        if (before, after) == (_BEFORE, _AFTER):
            return hook

        def enter() -> None:
            before()
            hook.__enter__()

        def leave() -> None:
            hook.__exit__(None, None, None)
            after()

        return self._guard.bracket(Fit.hooks, enter, leave)

    def _fetch(self) -> Bracket:
        phases = self._fit.phases
        if self.fetches_inside:
            return phases.bracket(Phase.DATA_WAIT)
        return DirectBracket(phases.fetch_begins, phases.fetch_ends)

    def _forward(self) -> Bracket:
        bracket = self._fit.phases.bracket(Phase.FORWARD)
        if self.manual:
            bracket = DirectBracket(self._forward_begins, self._forward_ends)
        if not self.fetches_inside:
            return bracket
        return DirectBracket(bracket.__enter__, partial(self._until_exhausted, bracket.__exit__))

    # -- what actions mean --------------------------------------------------------------------

    def _put(self, mark: Mark) -> None:
        if self._recorder.ground < FIRST_GAP:
            self._fit.phases.mark(mark)

    def _batch_begins(self) -> None:
        if self.fetches_inside:
            self._recorder.boundary()
        self._fit.begin_batch()

    def _forward_begins(self) -> None:
        self._around_forward = self._recorder.depth
        self._fit.phases.enter(_FORWARD)

    def _forward_ends(self, *_: object) -> None:
        # In manual optimization an optimizer's step may have begun that never ended.
        self._recorder.unwind(self._around_forward + 1)
        self._fit.phases.leave()

    def _until_exhausted(self, ends: Act, kind: type[BaseException] | None, *_: object) -> None:
        """Of a `training_step` that fetches by itself, and may find that there is no more."""
        self.exhausted = kind is StopIteration
        ends(kind, None, None)

    def _epoch_ends(self, kind: type[BaseException] | None, *_: object) -> None:
        """One that an exception ends has no boundary to the next."""
        if kind is None:
            self._recorder.epoch_ended()
        else:
            self._recorder.rest(Gap.SHUTDOWN)

    def _backward_begins(self, *_: object) -> None:
        self._recorder.enter(_BACKWARD)
        self._backward_open = True

    def _backward_ends(self) -> None:
        if not self._backward_open:
            return  # an earlier callback's hook ended it
        self._backward_open = False
        self._fit.phases.leave()
        self.backward_seen = self.backwards = True

    def _rest(self, role: Role) -> None:
        """A gap begins, unless it goes on already or another one holds it."""
        ground = self._recorder.ground
        if ground in _FROM.get(role, (Gap.SANITY_CHECK,)):
            # Inside a group of micro-batches nothing announces that the loader is built.
            unannounced = role == "validation" and ground < FIRST_GAP
            self._recorder.rest(MOVES[role].slot, since_last=unannounced)
