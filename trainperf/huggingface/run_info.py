"""Objects and settings of a Hugging Face training, as probes and comparisons look at them."""

from contextlib import ExitStack
from pathlib import Path
from typing import cast

import torch
import transformers
from torch.optim import Optimizer
from transformers import TrainerCallback, TrainerState, TrainingArguments

from trainperf.core.steps.records import Scalar
from trainperf.loop.framework_objects import optimizer_in
from trainperf.recording import run_settings
from trainperf.recording.probes.selection import FitObjects
from trainperf.recording.probes.tokens import MaskFunction
from trainperf.recording.process_objects import living
from trainperf.recording.sinks.base import Writer


def trainer_of(callback: TrainerCallback, state: TrainerState) -> "transformers.Trainer":
    """The Trainer that calls ours: a callback is not told, so it is searched for.

    Args:
        callback: Several Trainers, one after the other, may have it.
        state: Of the training that begins.

    Raises:
        LookupError: The garbage collector does not know of it.
    """
    for trainer in living(transformers.Trainer):
        handler = getattr(trainer, "callback_handler", None)
        if callback in getattr(handler, "callbacks", ()) and trainer.state is state:
            return trainer
    raise LookupError("the Trainer is not among the objects that the garbage collector follows")


def objects(trainer: "transformers.Trainer", mask: MaskFunction | None) -> FitObjects:
    """What probes look at.

    Args:
        trainer: About to train: what it has prepared is there, and wraps the model.
        mask: The user's function.
    """
    args, optimizer, scheduler = trainer.args, trainer.optimizer, trainer.lr_scheduler
    inner = None if optimizer is None else optimizer_in(optimizer)
    return FitObjects(
        device=torch.device(args.device),
        module=trainer.model_wrapped,
        optimizers=[inner] if isinstance(inner, Optimizer) else [],
        schedulers=[scheduler] if scheduler is not None else [],
        scaler=getattr(optimizer, "scaler", None),
        world_size=int(args.world_size),
        precision=f"precision {precision(args)}",
        loss_scale=None,
        mask=mask,
    )


def precision(args: TrainingArguments) -> str:
    """Mixed precision as Lightning names it."""
    return "bf16-mixed" if args.bf16 else "16-mixed" if args.fp16 else "32"


def configuration(args: TrainingArguments, watched: FitObjects) -> dict[str, Scalar]:
    """What comparisons of runs will need to know, beyond what every loop tells.

    Args:
        args: The Trainer's.
        watched: What is trained.
    """
    return {
        "precision": precision(args),
        "accumulate_grad_batches": args.gradient_accumulation_steps,
        "max_steps": args.max_steps,
        "max_epochs": float(args.num_train_epochs),
        "log_every_n_steps": str(args.logging_steps),
        "gradient_clip_val": args.max_grad_norm,
        "eval_strategy": str(getattr(args.eval_strategy, "value", args.eval_strategy)),
        "eval_steps": str(args.eval_steps),
        "save_strategy": str(getattr(args.save_strategy, "value", args.save_strategy)),
        "save_steps": str(args.save_steps),
        "loggers": ", ".join(args.report_to or ()),
        "optimizer_name": str(getattr(args.optim, "value", args.optim)),
        "compile_option": bool(args.torch_compile),
        "logging_nan_inf_filter": bool(args.logging_nan_inf_filter),
        "average_tokens_across_devices": bool(args.average_tokens_across_devices),
        # It sorts the whole dataset before the first step.
        "group_by_length": bool(getattr(args, "group_by_length", False))
        or getattr(args, "train_sampling_strategy", None) == "group_by_length",
        "schedulers": run_settings.names(watched.schedulers),
    }


def keeps_logits(trainer: "transformers.Trainer") -> bool:
    """Whether an evaluation gathers all that the model returns, for a metric at its end."""
    return (
        trainer.compute_metrics is not None
        and trainer.preprocess_logits_for_metrics is None
        and not trainer.args.prediction_loss_only
    )


def writer_of(args: TrainingArguments, state: TrainerState, closing: ExitStack) -> Writer | None:
    """A TensorBoard writer beside the Trainer's own, on rank 0, if it writes there.

    It has a thread and a file of its own, which end with *closing*.

    Raises:
        ImportError: The Trainer writes with something else than TensorBoard.
        OSError: It cannot write there.
    """
    if "tensorboard" not in (args.report_to or ()) or not state.is_world_process_zero:
        return None
    from torch.utils.tensorboard import SummaryWriter  # noqa: PLC0415 it takes a second to load

    writer = SummaryWriter(log_dir=str(_newest_events(Path(args.output_dir or "."))))
    closing.callback(writer.close)
    return cast("Writer", writer)


def _newest_events(directory: Path) -> Path:
    """Where the Trainer writes its events; its callbacks run before ours."""
    files = sorted(directory.glob("runs/*/events.out.tfevents.*"), key=lambda f: f.stat().st_mtime)
    return files[-1].parent if files else directory / "runs" / "trainperf"
