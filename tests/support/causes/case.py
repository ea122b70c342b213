"""One row of the table of causes: what is seen, what it is, and what only looks like it."""

from dataclasses import dataclass, field

from support.accounts import Seen

from trainperf.analysis.diagnosis.cause import Cause


@dataclass(frozen=True, slots=True)
class CauseCase:
    """A cause, and neighbours that are healthy."""

    cause: str
    """Id of it, and name of its detector."""
    says: str
    """Why these are the numbers."""
    sees: Seen
    removes_s: float | None
    """Of a step, or of the fit where it is about pauses; `None` where nobody knows."""
    change: str
    """Id of the first one."""
    healthy: tuple[Seen, ...] = ()
    """Just below, too rare, or of another kind."""
    words: tuple[str, ...] = ()
    """Parts of its title, its evidence, or what to do, in the words of its loop."""
    shows: dict[str, object] = field(default_factory=dict)
    """Further fields."""
    open: bool = False
    """Whether the detector does not keep it yet."""

    def found(self) -> Cause | None:
        """What the detector says of it."""
        return self.detect(self.sees)

    def detect(self, seen: Seen) -> Cause | None:
        """What the detector of that name says."""
        from trainperf.analysis.diagnosis import DETECTORS

        (detector,) = (each for each in DETECTORS if each.__name__ == self.cause)
        return detector(*seen)
