"""Importer of a Hugging Face `trainer_state.json`: what `Trainer` keeps next to a checkpoint.

Its `log_history` has a mean loss every `logging_steps` and the time of every evaluation.  The time
since the training began is in each entry if the Trainer counted tokens
(`include_num_input_tokens_seen`); else there is one for the whole training, in the entry that is
written when it is over.  Read in Transformers 5.23.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

from trainperf.core.errors import LogError
from trainperf.core.loop_kind import HUGGING_FACE
from trainperf.core.phases import Gap, Phase
from trainperf.importers.base import (
    SECOND,
    LogEvent,
    LogFormat,
    LoggedFit,
    LoggedGap,
    LoggedStart,
    LoggedSteps,
    lines_of,
)


Entry = Mapping[str, Any]

_RUNTIME, _TOKENS = "train_runtime", "num_input_tokens_seen"
_SETTINGS = {
    "log_every_n_steps": "logging_steps",
    "max_steps": "max_steps",
    "batch_size": "train_batch_size",
}


def read(file: Path, fit: LoggedFit) -> Iterator[LogEvent]:
    """The steps and gaps of a training, in order."""
    try:
        state = json.loads(b"".join(lines_of(file)))
        timed = [entry for entry in state["log_history"] if _RUNTIME in entry]
    except (ValueError, KeyError, TypeError) as error:
        raise LogError(f"{file}: damaged: {type(error).__name__}: {error}") from None
    if not timed:
        raise LogError(
            f"{file}: no time of a training step in it; one that trainer.save_state() writes after "
            "the training has train_runtime, and with include_num_input_tokens_seen every entry has"
        )
    fit.config |= {name: state[key] for name, key in _SETTINGS.items() if state.get(key)}
    final, whole_s, trained = timed[-1], timed[-1][_RUNTIME], _trained(timed[-1])
    fit.end_ns = round(whole_s * SECOND) if trained else None
    samples = final.get("train_samples_per_second", 0.0) * whole_s / max(1, trained)
    of_each: dict[str, float | None] = {"samples": round(samples) or samples} if samples else {}
    step = final["step"] - trained if trained and len(timed) == 1 else 0
    if step:
        fit.notes["resumed"] = f"resumed at step {step:,}: the steps before it have no time"
    yield from _events(
        [entry for entry in state["log_history"] if entry["step"] >= step], {"step": step}, of_each
    )


def _trained(final: Entry) -> int:
    """Steps that the rates of the last entry are of; 0 for an entry without."""
    whole_s, last = final[_RUNTIME], int(final["step"])
    # In Transformers 5 the rate is of the steps of this call, in which an earlier one may have
    # been resumed; it has three digits behind the point.
    trained = round(final.get("train_steps_per_second", 0.0) * whole_s)
    near = abs(trained - last) <= 1 + 0.0005 * whole_s
    return last if trained and near else min(trained, last)


def _events(
    history: Sequence[Entry], before: Entry, of_each: dict[str, float | None]
) -> Iterator[LogEvent]:
    """The steps and gaps behind an entry; each time is that of the entries since the one before."""
    entries: list[Entry] = []
    pauses: list[LoggedGap] = []
    at_s = 0.0
    yield LoggedStart()
    for entry in history:
        pauses += [
            LoggedGap(gap=Gap.VALIDATION, duration_ns=round(entry[name] * SECOND))
            for name in entry
            if name.startswith("eval") and name.endswith("_runtime")
        ]
        if "loss" in entry or _RUNTIME in entry:
            entries.append(entry)
        if _RUNTIME in entry:
            if entry[_RUNTIME] < at_s:  # resumed from a checkpoint: the clock began anew
                yield LoggedStart()
                at_s, pauses = 0.0, []
            spent_ns = (entry[_RUNTIME] - at_s) * SECOND - sum(gap.duration_ns for gap in pauses)
            steps = _steps(before, entries, max(0.0, spent_ns), of_each)
            # Of one entry they were behind the one before, of more they are behind some.
            yield from chain(pauses, steps) if len(entries) == 1 else chain(steps, pauses)
            before, at_s, entries, pauses = entry, entry[_RUNTIME], [], []
    yield from pauses


def _steps(
    before: Entry, entries: Sequence[Entry], spent_ns: float, of_each: dict[str, float | None]
) -> Iterator[LogEvent]:
    """The steps of entries that have one time together."""
    mean_of = number = entries[-1]["step"] - before["step"]
    for earlier, entry in pairwise([before, *entries]):
        steps, facts, loss = entry["step"] - earlier["step"], of_each, entry.get("loss")
        if _TOKENS in entry and steps:
            each = (entry[_TOKENS] - earlier.get(_TOKENS, 0.0)) / steps
            facts = {**of_each, "tokens_padded": each}
        if steps > 0:
            yield LoggedSteps(
                wall_ns=round(spent_ns / number),
                steps=steps,
                mean_of=mean_of,
                facts=facts,
                last={"loss": loss} if isinstance(loss, int | float) else {},
            )
            mean_of = 0


FORMAT = LogFormat(
    name="huggingface",
    title="a Hugging Face trainer_state.json",
    marks='JSON with "log_history" and "global_step"',
    mark=re.compile(rb'"log_history": ?\['),
    read=read,
    cumulative=True,
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
