"""Phases of trainers that generate what they learn from, as TRL's do.

Such a step is mostly made before its first forward: answers are generated, rewarded, and weighed by
log-probabilities.  TRL times these parts for its trackers and tells callbacks nothing, so methods
of the one trainer have a bracket while the fit goes on, and so have its reward functions.
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any

import torch
import transformers
from transformers import TrainerCallback, TrainerState, TrainingArguments

from trainperf.core.post_training import (
    ENVIRONMENT,
    LOG_PROBABILITIES,
    REWARD,
    ROLLOUT,
    WEIGHT_TRANSFER,
)
from trainperf.core.steps.own_sums import ANSWERS, count_answers
from trainperf.huggingface.passes import stand_in
from trainperf.loop.fit import Fit
from trainperf.recording.process_objects import living
from trainperf.recording.recorder import Recorder


_GENERATE, _SCORE = "_generate", "_get_per_token_logps_and_entropies"
METHODS: Mapping[str, str] = {
    _GENERATE: ROLLOUT,
    "_generate_single_turn": ROLLOUT,
    "_tool_call_loop": ENVIRONMENT,
    "_calculate_rewards": REWARD,
    _SCORE: LOG_PROBABILITIES,
    "sync_weights": WEIGHT_TRANSFER,
}
"""Method of a trainer, or of its inference engine, to its phase."""


def bracket_post_training(fit: Fit, callback: TrainerCallback) -> None:
    """Give the parts of a TRL trainer their phases, until the fit ends; of others nothing.

    Args:
        fit: Whose phases they are.
        callback: Ours, by which the trainer is found.
    """
    trainers = living(transformers.Trainer) if "trl" in sys.modules else ()
    for trainer in trainers:
        of_trl = any(kind.__module__.startswith("trl.") for kind in type(trainer).__mro__)
        if of_trl and callback in trainer.callback_handler.callbacks:
            for owner in (trainer, getattr(trainer, "vllm_generation", None)):
                for name in METHODS.keys() & dir(owner):
                    function = _bracketed(fit, METHODS[name], getattr(owner, name))
                    stand_in(owner, name, function, fit.undo)
            _bracket_rewards(fit, trainer)


def _bracket_rewards(fit: Fit, trainer: object) -> None:
    """A phase for each reward function by its name; those that run at the same time have none."""
    given = getattr(trainer, "reward_funcs", None)
    functions: list[Callable[..., Any]] = given if isinstance(given, list) else []
    for place, function in enumerate(functions):
        at_once = map(inspect.iscoroutinefunction, (function, getattr(function, "__call__", None)))  # noqa: B004
        if not isinstance(function, torch.nn.Module) and not any(at_once):
            name = getattr(function, "__name__", type(function).__name__)
            functions[place] = _bracketed(fit, f"{REWARD}: {name}", function)
            fit.undo.callback(functions.__setitem__, place, function)


def _bracketed(fit: Fit, phase: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function with its phase around it; what it generates is counted."""
    name = getattr(function, "__name__", "")

    @wraps(function)
    def measured(*args: Any, **options: Any) -> Any:  # noqa: ANN401 its own
        if name == _SCORE and torch.is_grad_enabled():  # of what is trained: it is forward
            return function(*args, **options)
        with fit.phases[phase]:
            result = function(*args, **options)
        if name == _GENERATE:
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
    """Count answers that teach nothing, by the latest entry of a Trainer's log.

    Args:
        recorder: Of the fit.
        state: The Trainer's.
        args: The Trainer's; they may have answers masked that were cut off.
    """
    latest = state.log_history[-1] if state.log_history else {}
    useless = latest.get("frac_reward_zero_std")
    masks = getattr(args, "mask_truncated_completions", False)
    masked = latest.get("completions/clipped_ratio") if masks else None
    if useless is not None:
        count_answers(recorder.count, (), max(useless, masked or 0.0))
