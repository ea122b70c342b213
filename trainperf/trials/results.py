"""Results of trials: from blocks of steps and losses to what a trial came to."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from trainperf.core.artifacts import trials as document
from trainperf.core.stats.switched import SwitchedSpeedup, switched_speedup
from trainperf.trials.trial import Trial


@dataclass(slots=True)
class Blocks:
    """Time per unit of work in blocks that took turns."""

    off_ns: list[float] = field(default_factory=list)
    on_ns: list[float] = field(default_factory=list)
    graphs: int = 0
    """That torch.compile built in them."""

    @property
    def pairs(self) -> int:
        """Blocks with the change that have one without it beside them."""
        return min(len(self.off_ns), len(self.on_ns))

    def add(self, ns: float, *, on: bool) -> None:
        """One more."""
        (self.on_ns if on else self.off_ns).append(ns)

    def speedup(self) -> SwitchedSpeedup:
        """By all pairs so far."""
        return switched_speedup(self.off_ns, self.on_ns)


def result_of(
    trial: Trial, *, verdict: document.TrialVerdict, **facts: object
) -> document.TrialResult:
    """What a trial came to, under its own names."""
    return document.TrialResult(
        id=trial.id,
        kind=trial.kind,
        title=trial.title or trial.id,
        apply=trial.apply,
        where=trial.where,
        rules=trial.rules,
        verdict=verdict,
        **facts,  # type: ignore[arg-type] # names of its own fields
    )


def recompiles(blocks: Blocks) -> str:
    """That the compiler's time is in the blocks, in words."""
    return f"torch.compile built {blocks.graphs} graphs while it was switched {blocks.pairs} times"


def mean_loss(losses: Sequence[float | None]) -> float | None:
    """Of some steps; `None` unless each told its loss."""
    values = [loss for loss in losses if loss is not None]
    return sum(values) / len(values) if values and len(values) == len(losses) else None


def alike(losses: tuple[float, float], tolerance: float | None) -> bool:
    """Whether both mean losses are those of the same training."""
    first, second = losses
    if tolerance is None:
        return True
    return abs(first - second) <= tolerance * max(abs(first), abs(second), 1e-2)
