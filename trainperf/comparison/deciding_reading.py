"""Which reading decides?  Step time where a step is the same work, else useful work a second."""

from collections.abc import Sequence
from dataclasses import dataclass

from trainperf.analysis.summary.schema import Summary
from trainperf.comparison.settings_diff import token_obstacle
from trainperf.comparison.side import Member


SAME_WORK = 0.005
"""Relative difference in what a step works through up to which steps are the same work."""

_WORK = {"effective_tokens_per_s": "effective tokens", "samples_per_s": "samples"}
"""Rates that count the same work in any shape of batch, the best one first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Primary:
    """What the verdict stands on."""

    name: str | None
    """The reading; `None` where there is nothing to compare."""
    why: str
    """Why it is that one, or why there is none."""
    per_rank: bool = False
    """Whether it is divided by the number of ranks: how well more of them scale."""


def primary(before: Sequence[Member], after: Sequence[Member]) -> Primary:
    """The reading that compares two runs fairly."""
    one, other = before[0].summary, after[0].summary
    unlike = token_obstacle(one, other)
    rates = [name for name in _WORK if _both(name, one, other) and not (unlike and "token" in name)]
    if one.run.world_size != other.run.world_size:
        return _of_rates(rates, unlike, "the number of ranks differs", per_rank=True)
    if not _same_work(rates, one, other):
        return _of_rates(rates, unlike, "a step is not the same work in both")
    if not _both("step_s", one, other):
        return Primary(name=None, why=_missing("step_s", one, other))
    return Primary(name="step_s", why="a step is the same work in both")


def _of_rates(rates: list[str], unlike: str | None, why: str, *, per_rank: bool = False) -> Primary:
    if rates:
        what = f"{_WORK[rates[0]]} a second{' and rank' if per_rank else ''} are compared"
        return Primary(name=rates[0], why=f"{why}: {what}", per_rank=per_rank)
    return Primary(name=None, why=unlike or f"{why}, and neither tokens nor samples were counted")


def _both(name: str, one: Summary, other: Summary) -> bool:
    return all(_value(name, run) is not None for run in (one, other))


def _same_work(rates: list[str], one: Summary, other: Summary) -> bool:
    """Whether a mean step works through as much; where nothing was counted, by its shape."""
    if not rates:
        return _shape(one) == _shape(other)
    sizes = [_work(rates[0], run) for run in (one, other)]
    return abs(sizes[1] / sizes[0] - 1) <= SAME_WORK


def _work(rate: str, run: Summary) -> float:
    """What a mean step works through."""
    return (_value(rate, run) or 0.0) * (_value("step_mean_s", run) or 0.0)


def _value(name: str, run: Summary) -> float | None:
    reading = run.readings.get(name)
    return None if reading is None else reading.value


def _missing(name: str, one: Summary, other: Summary) -> str:
    found = (run.readings.get(name) for run in (one, other))
    return next((reading.reason for reading in found if reading and reading.reason), "no step time")


def _shape(run: Summary) -> tuple[object, ...]:
    names = ("batch_size", "accumulate_grad_batches", "sequence_length")
    return tuple(run.run.config.get(name) for name in names)
