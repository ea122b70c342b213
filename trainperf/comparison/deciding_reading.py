"""The reading that decides a comparison: step time, or useful work per second.

Step time decides where a step is the same work in both runs; elsewhere the rate of tokens or
samples does.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from trainperf.analysis.summary.schema import Summary
from trainperf.comparison.compared_run import ComparedRun
from trainperf.comparison.settings_diff import token_obstacle
from trainperf.core.readings import EFFECTIVE_TOKENS_PER_S, SAMPLES_PER_S, STEP_MEAN_S, STEP_S


SAME_WORK = 0.005
"""Relative difference in what a step works through up to which steps are the same work."""

_WORK = {EFFECTIVE_TOKENS_PER_S: "effective tokens", SAMPLES_PER_S: "samples"}
"""Rates that count the same work in any shape of batch, the best one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DecidingReading:
    """What the verdict stands on."""

    name: str | None
    """The reading; `None` where there is nothing to compare."""
    why: str
    """Why it is that one, or why there is none."""
    per_rank: bool = False
    """Whether it is divided by the number of ranks: how well more of them scale."""


def deciding_reading(
    before: Sequence[ComparedRun], after: Sequence[ComparedRun]
) -> DecidingReading:
    """The reading that compares two runs fairly."""
    runs = (before[0].summary, after[0].summary)
    tokens_differ = token_obstacle(*runs)
    rates = [
        name for name in _WORK if _in_both(name, runs) and not (tokens_differ and "token" in name)
    ]
    if runs[0].run.world_size != runs[1].run.world_size:
        return _of_rates(rates, tokens_differ, "the number of ranks differs", per_rank=True)
    if not _same_work(rates, runs):
        return _of_rates(rates, tokens_differ, "a step is not the same work in both")
    if not _in_both(STEP_S, runs):
        reasons = [run.readings[STEP_S].reason for run in runs if STEP_S in run.readings]
        return DecidingReading(name=None, why=next(filter(None, reasons), "no step time"))
    return DecidingReading(name=STEP_S, why="a step is the same work in both")


def _of_rates(
    rates: list[str], tokens_differ: str | None, why: str, *, per_rank: bool = False
) -> DecidingReading:
    if rates:
        what = f"{_WORK[rates[0]]} per second{' and rank' if per_rank else ''} are compared"
        return DecidingReading(name=rates[0], why=f"{why}: {what}", per_rank=per_rank)
    why = tokens_differ or f"{why}, and neither tokens nor samples were counted"
    return DecidingReading(name=None, why=why)


def _in_both(name: str, runs: Sequence[Summary]) -> bool:
    return all(run.value(name) is not None for run in runs)


def _same_work(rates: list[str], runs: Sequence[Summary]) -> bool:
    """Whether a mean step works through as much; where nothing was counted, by its shape."""
    if not rates:
        shapes = [_shape(run) for run in runs]
        return shapes[0] == shapes[1]
    before, after = (_work_per_step(rates[0], run) for run in runs)
    return abs(after / before - 1) <= SAME_WORK


def _work_per_step(rate: str, run: Summary) -> float:
    """Tokens or samples of a mean step."""
    return (run.value(rate) or 0.0) * (run.value(STEP_MEAN_S) or 0.0)


def _shape(run: Summary) -> tuple[object, ...]:
    names = ("batch_size", "accumulate_grad_batches", "sequence_length")
    return tuple(run.run.config.get(name) for name in names)
