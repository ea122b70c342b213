"""Training under a Hugging Face Trainer, as trials see it."""

import transformers
from transformers import TrainerCallback
from transformers.trainer_callback import DefaultFlowCallback

from trainperf.core.loop_kind import HUGGING_FACE
from trainperf.loop.fit import Fit, FitFacts
from trainperf.loop.trials import FitTraining


class HuggingFaceTraining(FitTraining):
    """The training of a Trainer.

    Args:
        fit: Of it.
        facts: What it consists of.
        trainer: Whose it is.
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

    def __init__(self, fit: Fit, facts: FitFacts, trainer: "transformers.Trainer") -> None:
        super().__init__(fit, facts, [trainer.callback_handler])
        args = trainer.args
        self.computes_in_half |= args.bf16 or args.fp16
        strategy = str(getattr(args.logging_strategy, "value", args.logging_strategy))
        self.logs_every = (trainer.state, "logging_steps") if strategy == "steps" else None
