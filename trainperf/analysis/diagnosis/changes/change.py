"""A change: what to do about causes, what it takes, and what it usually realises."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from trainperf.core.findings import Effort
from trainperf.core.loop_kind import LoopKind
from trainperf.core.machine.backends import CUDA, Backend


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One thing that can be done, in code where there is code to change."""

    id: str
    of: tuple[str, ...]
    """Causes that it removes, or a part of them."""
    advice: str
    """What to do, as an imperative of a few words without a full stop."""
    how: str
    """The change in one line, for any loop; `{loader}` is the call with the options of `loader`."""
    how_in: Mapping[str, str] = field(default_factory=dict)
    """The same for a kind of loop, by its name."""
    loader: str = ""
    """Options of the `DataLoader`, as arguments: a kind of loop may call them by other names."""
    effort: Effort = "minutes"
    realises: float | None = 1.0
    """Share of the removed seconds that it usually saves; `None` where nothing tells."""
    source: str = "the law of the step"
    """Of that share, or why there is none."""
    bounded: bool = True
    """Whether it changes only what its cause claims: else the claim does not bound its gain."""
    trials: tuple[str, ...] = ()
    """Built-in trials that measure it."""
    confirm: str = "trainperf compare BEFORE AFTER: the step is shorter"
    """How to see that it helped."""
    costs: str = ""
    """What it may cost: memory, accuracy, another loss."""
    option: bool = False
    """Whether it trains something else, or in fewer digits: a decision, and what it saves is no
    waste."""

    def worded(
        self, loop: LoopKind, values: Mapping[str, object], device: Backend = CUDA
    ) -> tuple[str, str, str]:
        """Advice, action and how to confirm, for a kind of loop on a kind of device."""
        places = {"loop": loop, "device": device, **values}
        places["loader"] = loop.data_loader(self.loader.format(**places))
        how = self.how_in.get(loop.name, self.how)
        return self.advice.format(**places), how.format(**places), self.confirm.format(**places)


HF, LIGHTNING = "huggingface", "lightning"
OUTSIDE = ("outside", "outside, loader heard")
"""Kinds of loop, by their names."""

TWINS = "twins in tests/faults and by strangers, docs/research/accuracy.md"
PHASE = "trainperf compare BEFORE AFTER: the phase is shorter"
