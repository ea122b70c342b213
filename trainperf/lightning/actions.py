"""Meaning of Lightning actions: one table of the names that a `Trainer` gives its profiler.

A second one says what each meaning moves.  Tested against the installed Lightning: every name a
real fit emits is classified on purpose.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from trainperf.core.phases import Gap, Phase
from trainperf.loop.moves import Move


Role = Literal[
    "fetch",
    "h2d",
    "copy",
    "forward",
    "backward_begins",
    "backward_ends",
    "optimizer",
    "zero_grad",
    "hook",
    "last_hook",
    "batch",
    "epoch",
    "validation_begins",
    "validation",
    "sanity_begins",
    "sanity_ends",
    "checkpoint",
    "shutdown",
    "nothing",
]
"""What an action means for the timeline."""


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
    ("_TrainingEpochLoop", "train_dataloader_next"): "fetch",
    ("", "run_training_batch"): "batch",
    ("Strategy", "batch_to_device"): "h2d",
    **{(kind, "transfer_batch_to_device"): "copy" for kind in _MODULE},
    ("LightningModule", "optimizer_step"): "optimizer",
    ("", "optimizer_step"): "optimizer",  # manual optimization
    # Part of the optimizer's bracket, which it runs inside.
    ("LightningModule", "configure_gradient_clipping"): "nothing",
    ("Strategy", "training_step"): "forward",
    ("LightningModule", "optimizer_zero_grad"): "zero_grad",
    ("LightningModule", "on_before_backward"): "backward_begins",
    # The bracket around a whole backward: its hooks mark what is backward, in manual mode too.
    ("Strategy", "backward"): "nothing",
    ("*", "on_after_backward"): "backward_ends",
    ("LightningModule", "lr_scheduler_step"): "optimizer",
    ("LightningModule", "on_train_batch_end"): "last_hook",
    ("", "save_checkpoint"): "checkpoint",
    # The only signs of a validation that come before its loader is iterated; the first is absent
    # where gradients are still being accumulated.
    ("LightningModule", "on_validation_model_zero_grad"): "validation_begins",
    ("*", "val_dataloader"): "validation_begins",
    ("_EvaluationLoop", "val_next"): "validation",
    ("Strategy", "validation_step"): "validation",
    ("", "run_training_epoch"): "epoch",
    ("*", "on_sanity_check_start"): "sanity_begins",
    ("*", "on_sanity_check_end"): "sanity_ends",
    ("*", "on_train_end"): "shutdown",
}
"""Whole actions, (kind, hook) to role, in the order of a step and then of a fit.

A kind of `*` stands for any."""

VALIDATION_HOOKS = "on_validation_"
"""How the names of all other hooks begin that are part of a validation."""

_TAKES_ITERATOR = "where `training_step` takes `dataloader_iter`"

MOVES: Mapping[Role, Move] = {
    "fetch": Move(Phase.DATA_WAIT, Phase.OTHER, when=f"back to `forward` {_TAKES_ITERATOR}"),
    "batch": Move(Phase.OTHER, Phase.OTHER, when=f"only {_TAKES_ITERATOR}"),
    "h2d": Move(Phase.H2D),
    "optimizer": Move(Phase.OPTIMIZER),
    "forward": Move(Phase.FORWARD),
    "zero_grad": Move(Phase.OPTIMIZER),
    "backward_begins": Move(after=Phase.BACKWARD),
    "backward_ends": Move(when="back to what `on_before_backward` interrupted"),
    "hook": Move(Phase.CALLBACKS),
    "last_hook": Move(
        Phase.CALLBACKS, Phase.LOOP, when="`callbacks` where the module overrides it"
    ),
    "checkpoint": Move(Gap.CHECKPOINT),
    "validation_begins": Move(Gap.VALIDATION, Gap.VALIDATION, when="to the next fetch"),
    "validation": Move(
        Gap.VALIDATION, Gap.VALIDATION, when="to the next fetch; not in a sanity check"
    ),
    "epoch": Move(after=Gap.EPOCH_BOUNDARY, when="`shutdown` after an exception"),
    "sanity_begins": Move(Gap.SANITY_CHECK, Gap.SANITY_CHECK),
    "sanity_ends": Move(after=Gap.STARTUP),
    "shutdown": Move(Gap.SHUTDOWN, Gap.SHUTDOWN),
}
"""What the actions of a role move; the other roles move nothing."""


def role_of(action: Action, *, overridden: bool) -> Role:
    """What an action means; *overridden* says whether the hook is more than the base's no-op."""
    role = ROLES.get((action.kind, action.hook)) or ROLES.get(("*", action.hook))
    if role is not None:
        return role
    if action.hook.startswith(VALIDATION_HOOKS):
        return "validation"
    if overridden and action.kind in ("Callback", *_MODULE):
        return "hook"
    return "nothing"
