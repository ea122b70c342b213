"""Training under a Hugging Face Trainer, as trials see it."""

from transformers import TrainerCallback, TrainerState, TrainingArguments
from transformers.trainer_callback import DefaultFlowCallback

from trainperf.core.loop_kind import HUGGING_FACE
from trainperf.huggingface.disposable import handlers_of
from trainperf.loop.fit import Fit, FitFacts
from trainperf.loop.trials import FitTraining


class HuggingFaceTraining(FitTraining):
    """The training of a Trainer.

    Args:
        fit: Of it.
        facts: What it consists of.
        args: The Trainer's.
        state: The Trainer's.
        callback: Ours, by which its others are found.
    """

    autocast_line = HUGGING_FACE.bf16
    base = TrainerCallback
    essential = (DefaultFlowCallback,)
    step_hooks = (
        "on_step_begin",
        "on_substep_end",
        "on_pre_optimizer_step",
        "on_optimizer_step",
        "on_step_end",
        "on_log",
    )

    def __init__(
        self,
        fit: Fit,
        facts: FitFacts,
        args: TrainingArguments,
        state: TrainerState,
        callback: TrainerCallback,
    ) -> None:
        super().__init__(fit, facts, handlers_of(callback))
        self.computes_in_half |= args.bf16 or args.fp16
        strategy = str(getattr(args.logging_strategy, "value", args.logging_strategy))
        self.logs_every = (state, "logging_steps") if strategy == "steps" else None
