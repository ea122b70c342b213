"""Importer of a Hugging Face `trainer_state.json`: what `Trainer` keeps next to a checkpoint.

Its `log_history` has a mean loss every `logging_steps` and the time of every evaluation.  The time
since the training began is in each entry if the Trainer counted tokens
(`include_num_input_tokens_seen`); else there is one for the whole training, in the entry that is
written when it is over.  Read in Transformers 5.23.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

from trainperf.core.errors import LogError
from trainperf.core.loop_kind import HUGGING_FACE
from trainperf.core.phases import Gap, Phase
from trainperf.importers.base import (
    SECOND,
    LogEvent,
    LogFormat,
    LoggedFit,
    LoggedGap,
    LoggedRestart,
    LoggedSteps,
    LossWatch,
    phases_ns,
)


Entry = Mapping[str, Any]

_RUNTIME, _TOKENS = "train_runtime", "num_input_tokens_seen"


@dataclass(frozen=True, slots=True)
class _Stretch:
    """Steps between two entries that have a time."""

    entries: Sequence[Entry]
    """With a loss, in order."""
    first: int
    """Number of the step before them."""
    last: int
    seconds: float
    """Of the steps alone."""
    evaluations: Sequence[float]
    """Seconds, behind them."""
    anew: bool = False
    """Whether the training was resumed before them, and its clock began anew."""


def read(files: Sequence[Path]) -> list[LoggedFit]:
    """The training that a file is of; it has the whole history, so there is one file."""
    if len(files) > 1:
        raise LogError(
            f"{files[1]}: a trainer_state.json holds the whole history: give the latest alone"
        )
    try:
        state = json.loads(files[0].read_bytes())
        history: list[Entry] = list(state["log_history"])
    except (ValueError, KeyError, TypeError) as error:
        raise LogError(f"{files[0]}: damaged: {type(error).__name__}: {error}") from None
    fit = LoggedFit(events=iter(()))
    final = next((entry for entry in reversed(history) if "train_steps_per_second" in entry), None)
    stretches = list(_timed(history, state))
    if not stretches:
        stretches = _whole(files[0], history, final, fit)
    if final is not None:
        fit.end_ns = round(final[_RUNTIME] * SECOND)
    fit.config["log_every_n_steps"] = state.get("logging_steps")
    fit.config["max_steps"] = state.get("max_steps")
    if state.get("train_batch_size"):
        fit.config["batch_size"] = state["train_batch_size"]
    fit.events = _events(fit, stretches, final)
    return [fit]


def _timed(history: Sequence[Entry], state: Entry) -> Iterator[_Stretch]:
    """The stretches where every entry has its time."""
    step, at_s = 0, 0.0
    evaluations: list[float] = []
    waiting: _Stretch | None = None
    for entry in history:
        if (evaluated_s := _evaluated_s(entry)) is not None:
            evaluations.append(evaluated_s)
        elif "loss" in entry and _RUNTIME in entry:
            if waiting is not None:
                yield _behind(waiting, evaluations)
            anew = entry[_RUNTIME] < at_s
            if anew:  # resumed from a checkpoint: the clock began anew
                at_s, evaluations = 0.0, []
                step = max(step, _saved_before(entry["step"], state))
            seconds = entry[_RUNTIME] - at_s - sum(evaluations)
            waiting = _Stretch([entry], step, entry["step"], max(0.0, seconds), (), anew)
            step, at_s, evaluations = entry["step"], entry[_RUNTIME], []
    if waiting is not None:
        yield _behind(waiting, evaluations)


def _behind(stretch: _Stretch, evaluations: Sequence[float]) -> _Stretch:
    return replace(stretch, evaluations=tuple(evaluations))


def _saved_before(step: int, state: Entry) -> int:
    """The last checkpoint before a step."""
    every = state.get("save_steps")
    return (step - 1) // every * every if isinstance(every, int) and every > 0 else 0


def _whole(
    file: Path, history: Sequence[Entry], final: Entry | None, fit: LoggedFit
) -> list[_Stretch]:
    """The training as one stretch, by the time of the whole."""
    if final is None:
        raise LogError(
            f"{file}: no time of a training step in it; one that trainer.save_state() writes after "
            "the training has train_runtime, and with include_num_input_tokens_seen every entry has"
        )
    last, whole_s = int(final["step"]), float(final[_RUNTIME])
    # In Transformers 5 the rate is of the steps of this call, in which an earlier one may have
    # been resumed; it has three digits behind the point.
    trained = round(final["train_steps_per_second"] * whole_s)
    first = 0 if abs(trained - last) <= 1 + 0.0005 * whole_s else max(0, last - trained)
    if first:
        fit.notes["resumed"] = f"resumed at step {first:,}: the steps before it have no time"
    losses = [entry for entry in history if "loss" in entry and entry["step"] > first]
    evaluations = [
        seconds
        for entry in history
        if (seconds := _evaluated_s(entry)) is not None and entry["step"] >= first
    ]
    seconds = max(0.0, whole_s - sum(evaluations))
    return [_Stretch(losses, first, last, seconds, tuple(evaluations))] if last > first else []


def _evaluated_s(entry: Entry) -> float | None:
    """Seconds of the evaluation of an entry; `None` if it is of none."""
    names = (name for name in entry if name.startswith("eval") and name.endswith("_runtime"))
    name = next(names, None)
    return None if name is None else float(entry[name])


def _events(
    fit: LoggedFit, stretches: Sequence[_Stretch], final: Entry | None
) -> Iterator[LogEvent]:
    losses, tokens = LossWatch(fit), 0.0
    of_each: dict[str, float | None] = {}
    if final is not None and (trained := _trained(stretches, final)):
        samples = final["train_samples_per_second"] * final[_RUNTIME] / trained
        of_each["samples"] = round(samples) or samples
    for stretch in stretches:
        number = stretch.last - stretch.first
        if number < 1:
            continue
        if stretch.anew:
            yield LoggedRestart()
        host_ns, _ = phases_ns(round(stretch.seconds * SECOND / number), {})
        step, mean_of = stretch.first, number
        ends = [*stretch.entries, *([{"step": stretch.last}] if _cut(stretch) else [])]
        for entry in ends:
            facts = dict(of_each)
            if _TOKENS in entry:
                facts["tokens_padded"] = (entry[_TOKENS] - tokens) / (entry["step"] - step)
                tokens = entry[_TOKENS]
            loss = entry.get("loss")
            yield LoggedSteps(
                host_ns=host_ns,
                steps=entry["step"] - step,
                mean_of=mean_of,
                facts=facts,
                last={"loss": losses.take(loss, entry["step"])} if _is_number(loss) else {},
            )
            step, mean_of = entry["step"], 0
        for seconds in stretch.evaluations:
            yield LoggedGap(gap=Gap.VALIDATION, duration_ns=round(seconds * SECOND))


def _trained(stretches: Sequence[_Stretch], final: Entry) -> int:
    """Steps that the rates of the last entry are of: of all, or since the training was resumed."""
    if "train_samples_per_second" not in final:
        return 0
    begin = max((place for place, stretch in enumerate(stretches) if stretch.anew), default=0)
    numbers = [stretch.last - stretch.first for stretch in stretches]
    # Releases differ in this, and the rate has three digits behind the point.
    about = final["train_steps_per_second"] * final[_RUNTIME]
    return min(sum(numbers), sum(numbers[begin:]), key=lambda number: abs(number - about))


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float))


def _cut(stretch: _Stretch) -> bool:
    """Whether steps follow the last loss."""
    return not stretch.entries or stretch.entries[-1]["step"] < stretch.last


FORMAT = LogFormat(
    name="huggingface",
    title="a Hugging Face trainer_state.json",
    marks='JSON with "log_history" and "global_step"',
    mark=re.compile(rb'"log_history": ?\['),
    read=read,
    loop=HUGGING_FACE.name,
    clock="a step is the mean between two entries of log_history, without evaluations and with "
    "checkpoints",
    holds={
        Gap.VALIDATION.label: "`eval_runtime`",
        "samples": "`train_samples_per_second`: of the whole job",
        "tokens_padded": "`num_input_tokens_seen`, of the whole job; without padding if the "
        "Trainer was told so",
        "loss": "`loss`: the mean since the entry before",
    },
    lacks={
        phase.label: "trainer_state.json times no part of a step"
        for phase in Phase
        if phase is not Phase.OTHER
    }
    | {
        "tokens_effective": "`num_input_tokens_seen` does not say whether padding is in it",
        "peak_bytes": "the Trainer's memory metrics are not in trainer_state.json",
    },
)
