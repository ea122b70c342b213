"""A training that ends with its trials, and of which nothing is kept.

A Trainer counts the steps of an epoch where nobody can put them back.
"""

from transformers import TrainerCallback, TrainingArguments
from transformers.trainer_callback import CallbackHandler

from trainperf.recording.process_objects import living


MANY_STEPS, MANY_EPOCHS = 10**9, 10**6
"""Of a training that ends with its trials."""

_REPORTERS = "transformers.integrations"


def without_end(args: TrainingArguments) -> None:
    """Have a training end with its trials, and write nothing.

    No limit on steps or epochs; a learning rate that warms up does not do so for ever.
    """
    if args.max_steps > 0:
        args.max_steps = MANY_STEPS
    else:
        args.num_train_epochs = MANY_EPOCHS
    for share in ("warmup_ratio", "warmup_steps"):
        if 0 < (getattr(args, share, 0) or 0) < 1:
            setattr(args, share, 0)
    args.ignore_data_skip = True  # a resumed epoch would have a loader of its own
    args.report_to = []


def without_reports(callback: TrainerCallback) -> None:
    """No logs are kept: callbacks beside ours that write some hear nothing."""
    for handler in handlers_of(callback):
        handler.callbacks = [
            each for each in handler.callbacks if not type(each).__module__.startswith(_REPORTERS)
        ]


def handlers_of(callback: TrainerCallback) -> list[CallbackHandler]:
    """Who calls ours: a callback is not told, so it is searched for."""
    handlers = living(CallbackHandler)
    return [each for each in handlers if any(other is callback for other in each.callbacks)]
