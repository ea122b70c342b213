"""Trial: one change that can be made and unmade between two steps of a training."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from trainperf.core.artifacts.trials import TrialKind
from trainperf.core.errors import ConfigError
from trainperf.recording.process_objects import nothing


LOSS_TOLERANCE = 0.02
"""Relative difference of the mean loss on the same batches up to which training is the same."""
SAME_ARITHMETIC = 0.005
"""The same where a change computes the same in another order."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A change that is switched on and off while a training runs, to measure what it brings.

    Both functions are called between two steps, in turns.  They must return soon, and `off` must
    leave everything as it was before `on`: weights, optimizer and random generators are restored
    by trainperf.

    Args:
        id: Unique name, e.g. `my_loss`; a built-in trial of that name is left out for it.
        on: Makes the change.
        off: Unmakes it.
        kind: A change that can be kept, or a ceiling: work left out, to see what it costs.
        title: What is tried, in a few words; by default the name.
        apply: The line to write to keep it.
        where: Where that belongs, if the line does not say it.
        rules: Findings whose advice it is, or whose bound it measures.
        group: Of several changes with the same group at most one is in a set, e.g. `precision`.
        warmup_steps: Steps after each switch that are like neither side, e.g. while queues drain;
            the first always is.
        block_multiple: Steps of a block are a multiple of this, e.g. batches that are sorted
            together.
        tolerance: Relative difference of the loss up to which it still trains the same; `None`
            where the loss says nothing, as where the update is left out.
        run_last: Whether it comes after the others, because it may leave something behind.
        bounded_by: Id of the ceiling that bounds it: where that brings next to nothing, this is not
            tried.
        finish: Called once after the last block, with the change unmade: stops what it started,
            e.g. processes.  It may be made again afterwards.
        unavailable: Why it cannot be tried in this training, empty if it can; or reasons, each with
            whether it holds; or a function that is asked once batches have come.

    Raises:
        ConfigError: It has no name.
    """

    id: str
    on: Callable[[], object]
    off: Callable[[], object]
    kind: TrialKind = "change"
    title: str = ""
    apply: str = ""
    where: str = ""
    rules: tuple[str, ...] = ()
    group: str = ""
    warmup_steps: int = 1
    block_multiple: int = 1
    tolerance: float | None = LOSS_TOLERANCE
    run_last: bool = False
    bounded_by: str = ""
    finish: Callable[[], object] = nothing
    unavailable: str | Mapping[str, object] | Callable[[], str] = ""

    def __post_init__(self) -> None:
        if not self.id:
            raise ConfigError("Trial(''): it has no name; try Trial('my_change', on=…, off=…)")

    def why_not(self) -> str:
        """Why it cannot be tried now: the first reason that holds; empty if none does."""
        if isinstance(self.unavailable, Mapping):
            return next((why for why, holds in self.unavailable.items() if holds), "")
        return self.unavailable if isinstance(self.unavailable, str) else self.unavailable()


def cannot(
    id: str,  # noqa: A002 the field's name
    why: str,
    *,
    title: str = "",
    kind: TrialKind = "change",
    rules: tuple[str, ...] = (),
) -> Trial:
    """A trial that does not apply to this training, and why; it leaves out the built-in one."""
    return Trial(id, nothing, nothing, kind, title, rules=rules, unavailable=why)


def together(trials: Sequence[Trial]) -> Trial:
    """Several changes as one: made in order, unmade in the opposite order."""
    tolerances = [trial.tolerance for trial in trials if trial.tolerance is not None]
    return Trial(
        " + ".join(trial.id for trial in trials),
        on=lambda: [trial.on() for trial in trials],
        off=lambda: [trial.off() for trial in reversed(trials)],
        title=" + ".join(trial.title or trial.id for trial in trials),
        apply="; ".join(filter(None, (trial.apply for trial in trials))),
        rules=tuple(dict.fromkeys(rule for trial in trials for rule in trial.rules)),
        warmup_steps=max(trial.warmup_steps for trial in trials),
        block_multiple=max(trial.block_multiple for trial in trials),
        tolerance=sum(tolerances) if tolerances else None,
        finish=lambda: [trial.finish() for trial in reversed(trials)],
    )
