"""Moves of a Hugging Face training through its phases: by the Trainer's events, and four hooks.

The table is in the order of a step, then of what may come between two.
"""

from collections.abc import Mapping

from trainperf.core.phases import Gap, Phase
from trainperf.loop.moves import Move


BATCH, COPY = "next batch of the loader", "copy of the batch"
EVALUATED = "back to what went on before, or `checkpoint` if it follows"
FORWARD, BACKWARD = "call of the model", "accelerator.backward"
FOLLOWS = "`validation` or `checkpoint` if that is what the Trainer does next"

MOVES: Mapping[str, Move] = {
    "on_epoch_begin": Move(when="nothing yet: the loader may be another one in this epoch"),
    BATCH: Move(Phase.DATA_WAIT, Phase.OTHER),
    COPY: Move(Phase.H2D, when="not on a CPU"),
    "on_step_begin": Move(when="where the loader is not seen, it ends the wait"),
    FORWARD: Move(after=Phase.FORWARD, when="in training mode, with gradients"),
    BACKWARD: Move(Phase.BACKWARD, Phase.LOOP),
    "on_substep_end": Move(after=Phase.OTHER),
    "on_pre_optimizer_step": Move(after=Phase.OPTIMIZER),
    "on_optimizer_step": Move(after=Phase.CALLBACKS),
    "on_step_end": Move(after=Phase.CALLBACKS, when=FOLLOWS),
    "on_log": Move(when=FOLLOWS),
    "on_prediction_step": Move(
        after=Gap.VALIDATION, when="since the last event, if nothing has announced it"
    ),
    "on_evaluate": Move(when=EVALUATED),
    "on_predict": Move(when=EVALUATED),
    "on_save": Move(when="what came since the last event was `checkpoint`; back to before"),
    "on_epoch_end": Move(after=Gap.EPOCH_BOUNDARY),
    "on_train_end": Move(after=Gap.SHUTDOWN),
}
"""What each event moves."""
