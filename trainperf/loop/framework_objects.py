"""Objects of frameworks: prepared optimizers and schedulers, callbacks, and attributes of theirs.

What Accelerate or Fabric has prepared wraps the user's own; hooks and counters are on those.
"""

from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from typing import cast

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from trainperf.core.errors import ConfigError


_FRAMEWORKS = ("accelerate.", "lightning.fabric.", "lightning_fabric.")


def optimizers_in(given: Optimizer | Iterable[Optimizer]) -> list[Optimizer]:
    """One or several of the user's, each without what a framework put around it."""
    return [optimizer_in(cast("Optimizer", each)) for each in _several(given)]


def optimizer_in(given: Optimizer) -> Optimizer:
    """The user's, without what a framework put around it."""
    return cast("Optimizer", _inside(given, "optimizer"))


def stepped_optimizer(given: Optimizer | None, watched: Sequence[Optimizer]) -> Optimizer:
    """Which of the *watched* is stepped under a scaler: the *given* one, else the only one.

    Raises:
        ConfigError: It is not among them, or there are several to choose from.
    """
    optimizer = given and optimizer_in(given)
    if optimizer is not None and not any(optimizer is other for other in watched):
        raise ConfigError(
            "phase('optimizer', optimizer): not one of those that watch() was given; name it there"
        )
    if optimizer is None and len(watched) != 1:
        raise ConfigError(
            f"phase('optimizer') under a scaler with {len(watched)} optimizers: say which, as in "
            "phase('optimizer', optimizer)"
        )
    return optimizer or watched[0]


def schedulers_in(given: LRScheduler | Iterable[LRScheduler]) -> list[LRScheduler]:
    """As `optimizers_in`."""
    return [cast("LRScheduler", _inside(each, "scheduler")) for each in _several(given)]


def overrides(owner: object, base: type, hook: str) -> bool:
    """Whether a callback's hook is more than the no-op of its base."""
    function = getattr(owner, hook, None)
    return getattr(function, "__func__", function) is not getattr(base, hook, None)


def is_ours(callback: object) -> bool:
    """Whether a callback is, or inherits from, one of trainperf's."""
    return any(base.__module__.startswith("trainperf.") for base in type(callback).__mro__)


def stand_in(owner: object, name: str, ours: object, undo: ExitStack) -> None:
    """Have *ours* in place of an attribute or a method of one object, until it is undone."""
    own = vars(owner)
    if name in own:
        undo.callback(own.__setitem__, name, own[name])
    undo.callback(own.pop, name, None)
    own[name] = ours


def _several(given: object) -> list[object]:
    return list(given) if isinstance(given, Iterable) else [given]


def _inside(wrapper: object, name: str) -> object:
    """What the frameworks' wrappers hold under a name, through all of them."""
    while type(wrapper).__module__.startswith(_FRAMEWORKS) and hasattr(wrapper, name):
        wrapper = getattr(wrapper, name)
    return wrapper
