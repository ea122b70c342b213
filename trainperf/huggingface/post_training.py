"""Phases of trainers that generate what they learn from, as TRL's do.

Such a step is mostly made before its first forward: answers are generated, rewarded, and weighed by
log-probabilities.  TRL times these parts for its trackers and tells callbacks nothing, so methods
of the one trainer have a bracket while the fit goes on, and so have its reward functions.
"""

import inspect
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any, NamedTuple

import torch
import transformers
from transformers import TrainerState, TrainingArguments

from trainperf.core.post_training import (
    ENVIRONMENT,
    LOG_PROBABILITIES,
    REWARD,
    ROLLOUT,
    WEIGHT_TRANSFER,
)
from trainperf.core.steps.own_sums import ANSWERS, count_answers
from trainperf.loop.fit import Fit
from trainperf.loop.framework_objects import stand_in
from trainperf.recording.recorder import Recorder


class Part(NamedTuple):
    """What a method does."""

    phase: str
    generates: bool = False
    """Whether it returns the answers, which are counted."""
    trains: bool = False
    """Whether it is forward where gradients are computed."""


METHODS: Mapping[str, Part] = {
    "_generate": Part(ROLLOUT, generates=True),
    "_generate_single_turn": Part(ROLLOUT),
    "_tool_call_loop": Part(ENVIRONMENT),
    "_calculate_rewards": Part(REWARD),
    "_get_per_token_logps_and_entropies": Part(LOG_PROBABILITIES, trains=True),
    "sync_weights": Part(WEIGHT_TRANSFER),
}
"""Methods of a trainer, or of its inference engine."""


def bracket_post_training(fit: Fit, trainer: "transformers.Trainer") -> bool:
    """Give the parts of a TRL trainer their phases, until the fit ends; whether it is one.

    Args:
        fit: Whose phases they are.
        trainer: Any.
    """
    if not any(kind.__module__.startswith("trl.") for kind in type(trainer).__mro__):
        return False
    for owner in (trainer, getattr(trainer, "vllm_generation", None)):
        for name in METHODS.keys() & dir(owner):
            stand_in(owner, name, _bracketed(fit, METHODS[name], getattr(owner, name)), fit.undo)
    _bracket_rewards(fit, trainer)
    return True


def _bracket_rewards(fit: Fit, trainer: object) -> None:
    """A phase for each reward function by its name; those that run at the same time have none."""
    given = getattr(trainer, "reward_funcs", None)
    functions: list[Callable[..., Any]] = given if isinstance(given, list) else []
    for place, function in enumerate(functions):
        at_once = map(inspect.iscoroutinefunction, (function, getattr(function, "__call__", None)))  # noqa: B004
        if not isinstance(function, torch.nn.Module) and not any(at_once):
            name = getattr(function, "__name__", type(function).__name__)
            functions[place] = _bracketed(fit, Part(f"{REWARD}: {name}"), function)
            fit.undo.callback(functions.__setitem__, place, function)


def _bracketed(fit: Fit, part: Part, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function with its phase around it."""

    @wraps(function)
    def measured(*args: Any, **options: Any) -> Any:  # noqa: ANN401 its own
        if part.trains and torch.is_grad_enabled():
            return function(*args, **options)
        with fit.phases[part.phase]:
            result = function(*args, **options)
        if part.generates:
            fit.guard.run(ANSWERS, partial(_count, fit.recorder, result))
        return result

    return measured


def _count(recorder: Recorder, generated: tuple[object, ...]) -> None:
    """Count answers that are lists of tokens: some trainers have other things in their place."""
    answers = generated[1] if isinstance(generated, tuple) and len(generated) > 1 else None
    if isinstance(answers, list):
        count_answers(
            recorder.count, [len(answer) for answer in answers if isinstance(answer, list)]
        )


def count_useless(recorder: Recorder, state: TrainerState, args: TrainingArguments) -> None:
    """Count answers that teach nothing, by the latest entry of a TRL trainer's log.

    Args:
        recorder: Of the fit.
        state: The Trainer's.
        args: The Trainer's; they may have answers masked that were cut off.
    """
    latest = state.log_history[-1] if state.log_history else {}
    useless = latest.get("frac_reward_zero_std")
    masks = getattr(args, "mask_truncated_completions", False)
    if useless is not None:
        masked = latest.get("completions/clipped_ratio", 0.0) if masks else 0.0
        count_answers(recorder.count, (), max(useless, masked))
