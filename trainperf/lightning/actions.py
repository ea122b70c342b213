"""Meaning of Lightning actions: one table of the names that a `Trainer` gives its profiler.

Tested against the installed Lightning: every name a real fit emits is classified on purpose.
"""

from dataclasses import dataclass
from enum import Enum, auto


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

# Whole actions: (kind, hook) to role.  A kind of "*" stands for any.
_TABLE: dict[tuple[str, str], Role] = {
    ("_TrainingEpochLoop", "train_dataloader_next"): Role.FETCH,
    ("Strategy", "batch_to_device"): Role.H2D,
    ("Strategy", "training_step"): Role.FORWARD,
    ("LightningModule", "on_before_backward"): Role.BACKWARD_BEGINS,
    ("*", "on_after_backward"): Role.BACKWARD_ENDS,
    ("LightningModule", "optimizer_step"): Role.OPTIMIZER,
    ("LightningModule", "optimizer_zero_grad"): Role.ZERO_GRAD,
    ("LightningModule", "lr_scheduler_step"): Role.OPTIMIZER,
    ("", "optimizer_step"): Role.OPTIMIZER,  # manual optimization
    ("LightningModule", "on_train_batch_end"): Role.LAST_HOOK,
    ("", "run_training_batch"): Role.BATCH,
    ("", "run_training_epoch"): Role.EPOCH,
    ("", "save_checkpoint"): Role.CHECKPOINT,
    ("*", "on_sanity_check_start"): Role.SANITY_BEGINS,
    ("*", "on_sanity_check_end"): Role.SANITY_ENDS,
    ("*", "on_train_end"): Role.SHUTDOWN,
    # The only signs of a validation that come before its loader is iterated; the first is absent
    # where gradients are still being accumulated.
    ("LightningModule", "on_validation_model_zero_grad"): Role.VALIDATION_BEGINS,
    ("*", "val_dataloader"): Role.VALIDATION_BEGINS,
    ("_EvaluationLoop", "val_next"): Role.VALIDATION,
    ("Strategy", "validation_step"): Role.VALIDATION,
    # Part of the optimizer's bracket, which they run inside.
    ("LightningModule", "configure_gradient_clipping"): Role.NOTHING,
    # The bracket around a whole backward: its hooks mark what is backward, in manual mode too.
    ("Strategy", "backward"): Role.NOTHING,
    **{(kind, "transfer_batch_to_device"): Role.COPY for kind in _MODULE},
}


def overrides(owner: object, base: type, hook: str) -> bool:
    """Whether a hook is more than the no-op of its base."""
    function = getattr(owner, hook, None)
    return getattr(function, "__func__", function) is not getattr(base, hook, None)


def role_of(action: Action, *, overridden: bool) -> Role:
    """What an action means; *overridden* says whether the hook is more than the base's no-op."""
    role = _TABLE.get((action.kind, action.hook)) or _TABLE.get(("*", action.hook))
    if role is not None:
        return role
    if action.hook.startswith("on_validation_"):
        return Role.VALIDATION
    if overridden and action.kind in ("Callback", *_MODULE):
        return Role.HOOK
    return Role.NOTHING
