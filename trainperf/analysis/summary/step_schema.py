"""Contents of `summary.json` about steps: lines of code seen in them, and changes over a run."""

import msgspec


class LineShare(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the user's code, and how much of a phase or gap was seen there."""

    where: str
    """`file:line`."""
    function: str
    """Empty where there is none to name: in a script's own code, a lambda, or the loop itself."""
    fraction: float
    """Share of the sampled wall time of that phase or gap."""
    samples: int
    """Of that phase or gap, in all."""

    @property
    def subject(self) -> str:
        """What to act on: `estimate_loss`, or `train.py:88` where no function is named."""
        return self.function or self.where

    @property
    def name(self) -> str:
        """E.g. `estimate_loss (train.py:88)`."""
        return f"{self.function} ({self.where})" if self.function else self.where


class PlainCode(msgspec.Struct, frozen=True, kw_only=True):
    """What a function of the user runs on the host that is no tensor operation."""

    line: LineShare
    """The innermost function in at least half of it, at its heaviest line; the share is of the
    phase or gap."""
    low: float
    high: float
    """95 % interval of that share, by the number of samples."""
    names: tuple[str, ...]
    """What runs, e.g. `time.sleep`; that which takes most first."""


class StallingCall(msgspec.Struct, frozen=True, kw_only=True):
    """A line that waits for a device, gives memory back, looks for garbage, or sends objects."""

    name: str
    """E.g. `gc.collect`, `torch.cuda.synchronize`."""
    where: str
    """`file:line`."""
    fraction: float
    """Share of the sampled wall time of the phase, or of all steps."""
    inside: float = 0.0
    """The same of the function that the line is in; its own where that runs the loop."""


class PhaseLines(msgspec.Struct, frozen=True, kw_only=True):
    """Lines that were seen in a phase of the steady steps, or in a gap; on rank 0."""

    slot: str
    samples: int
    owner: LineShare | None
    """The innermost function in at least half of them, at its heaviest line, with the share of
    the function; in the function that runs the loop a line in at least half of them; `None` where
    there is none."""
    lines: tuple[LineShare, ...]
    """The heaviest first, each with its own share; those in which a twentieth or more was seen."""
    host: PlainCode | None = None
    loader_fraction: float | None = None
    """Share of them inside a `DataLoader`; `None` where the recording does not say."""
    stalls: tuple[StallingCall, ...] = ()
    """What waits for a device, has memory given back or sends objects, the longest first."""


class RecurringSteps(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that are slow again and again, at a regular distance."""

    every: int
    """Steps from one to the next."""
    steps: int
    of_steps: int
    """Ordinary steps that were looked at, these included."""
    slow_s: float
    """Median of them."""
    typical_s: float
    """Median of the ordinary steps."""
    lost_s: float
    """What they take beyond the median, all together."""
    phase: str
    """The one in which most of that is."""
    phase_fraction: float
    """How much of it."""
    line: LineShare | None
    """What owns that phase of these steps beyond an ordinary step: the outermost function that
    ordinary steps do not call, or a line of the functions that they do."""


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that changed with the steps: its mean before and after, or at both ends."""

    fact: str
    before: float
    after: float


class RunChange(msgspec.Struct, frozen=True, kw_only=True):
    """Steps take longer: since a step, or bit by bit over the run."""

    from_step: int = 0
    """The first step that takes longer; 0 where they get longer bit by bit."""
    until_step: int | None = None
    """The first that does no longer; `None` if it lasts to the end."""
    begins_s: float
    """Of a steady step, before and after: medians of the means of pieces of the run; where it is
    bit by bit, means of the first sixteenth of the run and of the last."""
    ends_s: float
    lost_s: float
    """What all that come after take longer together."""
    phase: str = ""
    """The phase that grew most, on the rank whose own work that is."""
    phase_begins_s: float = 0.0
    phase_ends_s: float = 0.0
    rank: int | None = None
    """That rank; `None` if it is so on all, or there is one."""
    alike: bool = False
    """Whether most of it is that forward, backward and optimizer grew by like factors: the machine,
    not the work."""
    moved: tuple[Moved, ...] = ()
