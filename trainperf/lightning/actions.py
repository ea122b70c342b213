"""Meaning of Lightning actions: one table of the names that a `Trainer` gives its profiler.

A second one says what each meaning moves.  Tested against the installed Lightning: every name a
real fit emits is classified on purpose.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto

from trainperf.core.phases import Gap, Phase
from trainperf.loop.moves import Move


class Role(Enum):
    """What an action means for the timeline."""

    FETCH = auto()
    H2D = auto()
    COPY = auto()
    FORWARD = auto()
    BACKWARD_BEGINS = auto()
    BACKWARD_ENDS = auto()
    OPTIMIZER = auto()
    ZERO_GRAD = auto()
    HOOK = auto()
    LAST_HOOK = auto()
    BATCH = auto()
    EPOCH = auto()
    VALIDATION_BEGINS = auto()
    VALIDATION = auto()
    SANITY_BEGINS = auto()
    SANITY_ENDS = auto()
    CHECKPOINT = auto()
    SHUTDOWN = auto()
    NOTHING = auto()


@dataclass(frozen=True, slots=True)
class Action:
    """A parsed action name: `[Callback]Slow.on_train_batch_end` is kind, owner and hook."""

    kind: str
    """`Callback`, `LightningModule`, `LightningDataModule`, `Strategy`, or empty."""
    owner: str
    hook: str

    @classmethod
    def parse(cls, name: str) -> "Action":
        """Split a name; the owner of a callback is its state key, which may contain anything."""
        if not name.startswith("["):
            return cls("", "", name)
        kind, _, rest = name[1:].partition("]")
        owner, _, hook = rest.rpartition(".")
        return cls(kind, owner, hook)

    @property
    def label(self) -> str:
        """What a report calls it: `Slow.on_train_batch_end`, without the state key's details."""
        owner = self.owner.partition("{")[0]
        return f"{owner}.{self.hook}" if owner else self.hook


_MODULE = ("LightningModule", "LightningDataModule")

ROLES: Mapping[tuple[str, str], Role] = {
    ("_TrainingEpochLoop", "train_dataloader_next"): Role.FETCH,
    ("", "run_training_batch"): Role.BATCH,
    ("Strategy", "batch_to_device"): Role.H2D,
    **{(kind, "transfer_batch_to_device"): Role.COPY for kind in _MODULE},
    ("LightningModule", "optimizer_step"): Role.OPTIMIZER,
    ("", "optimizer_step"): Role.OPTIMIZER,  # manual optimization
    # Part of the optimizer's bracket, which it runs inside.
    ("LightningModule", "configure_gradient_clipping"): Role.NOTHING,
    ("Strategy", "training_step"): Role.FORWARD,
    ("LightningModule", "optimizer_zero_grad"): Role.ZERO_GRAD,
    ("LightningModule", "on_before_backward"): Role.BACKWARD_BEGINS,
    # The bracket around a whole backward: its hooks mark what is backward, in manual mode too.
    ("Strategy", "backward"): Role.NOTHING,
    ("*", "on_after_backward"): Role.BACKWARD_ENDS,
    ("LightningModule", "lr_scheduler_step"): Role.OPTIMIZER,
    ("LightningModule", "on_train_batch_end"): Role.LAST_HOOK,
    ("", "save_checkpoint"): Role.CHECKPOINT,
    # The only signs of a validation that come before its loader is iterated; the first is absent
    # where gradients are still being accumulated.
    ("LightningModule", "on_validation_model_zero_grad"): Role.VALIDATION_BEGINS,
    ("*", "val_dataloader"): Role.VALIDATION_BEGINS,
    ("_EvaluationLoop", "val_next"): Role.VALIDATION,
    ("Strategy", "validation_step"): Role.VALIDATION,
    ("", "run_training_epoch"): Role.EPOCH,
    ("*", "on_sanity_check_start"): Role.SANITY_BEGINS,
    ("*", "on_sanity_check_end"): Role.SANITY_ENDS,
    ("*", "on_train_end"): Role.SHUTDOWN,
}
"""Whole actions, (kind, hook) to role, in the order of a step and then of a fit.

A kind of `*` stands for any."""

VALIDATION_HOOKS = "on_validation_"
"""How the names of all other hooks begin that are part of a validation."""

_TAKES_ITERATOR = "where `training_step` takes `dataloader_iter`"

MOVES: Mapping[Role, Move] = {
    Role.FETCH: Move(Phase.DATA_WAIT, Phase.OTHER, when=f"back to `forward` {_TAKES_ITERATOR}"),
    Role.BATCH: Move(Phase.OTHER, Phase.OTHER, when=f"only {_TAKES_ITERATOR}"),
    Role.H2D: Move(Phase.H2D),
    Role.OPTIMIZER: Move(Phase.OPTIMIZER),
    Role.FORWARD: Move(Phase.FORWARD),
    Role.ZERO_GRAD: Move(Phase.OPTIMIZER),
    Role.BACKWARD_BEGINS: Move(after=Phase.BACKWARD),
    Role.BACKWARD_ENDS: Move(when="back to what `on_before_backward` interrupted"),
    Role.HOOK: Move(Phase.CALLBACKS),
    Role.LAST_HOOK: Move(
        Phase.CALLBACKS, Phase.LOOP, when="`callbacks` where the module overrides it"
    ),
    Role.CHECKPOINT: Move(Gap.CHECKPOINT),
    Role.VALIDATION_BEGINS: Move(Gap.VALIDATION, Gap.VALIDATION, when="to the next fetch"),
    Role.VALIDATION: Move(
        Gap.VALIDATION, Gap.VALIDATION, when="to the next fetch; not in a sanity check"
    ),
    Role.EPOCH: Move(after=Gap.EPOCH_BOUNDARY, when="`shutdown` after an exception"),
    Role.SANITY_BEGINS: Move(Gap.SANITY_CHECK, Gap.SANITY_CHECK),
    Role.SANITY_ENDS: Move(after=Gap.STARTUP),
    Role.SHUTDOWN: Move(Gap.SHUTDOWN, Gap.SHUTDOWN),
}
"""What the actions of a role move; the other roles move nothing."""


def role_of(action: Action, *, overridden: bool) -> Role:
    """What an action means; *overridden* says whether the hook is more than the base's no-op."""
    role = ROLES.get((action.kind, action.hook)) or ROLES.get(("*", action.hook))
    if role is not None:
        return role
    if action.hook.startswith(VALIDATION_HOOKS):
        return Role.VALIDATION
    if overridden and action.kind in ("Callback", *_MODULE):
        return Role.HOOK
    return Role.NOTHING
