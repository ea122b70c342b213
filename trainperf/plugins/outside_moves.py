"""Moves of a loop that is recorded from outside through its phases: by calls that hooks hear of.

The table is in the order of a step.
"""

from collections.abc import Mapping

from trainperf.core.phases import Gap, Phase
from trainperf.loop.moves import Move


FETCH, FORWARD, RETURN = "call of a DataLoader", "call of a trained module", "return of a loss"
FIRST_GRADIENT, BACKWARD_ENDS = "first gradient of an output", "end of autograd's backward"
UPDATE, EVALUATION = "optimizer.step", "call that is not trained"

MOVES: Mapping[str, Move] = {
    FETCH: Move(Phase.DATA_WAIT, Phase.OTHER, when="from Python 3.12 on"),
    FORWARD: Move(after=Phase.FORWARD),
    RETURN: Move(after=Phase.OTHER),
    FIRST_GRADIENT: Move(after=Phase.BACKWARD),
    BACKWARD_ENDS: Move(after=Phase.OTHER),
    UPDATE: Move(
        Phase.OPTIMIZER,
        Phase.OTHER,
        when="`data_wait` after the last one of a step, where no call of a DataLoader is heard",
    ),
    EVALUATION: Move(
        after=Gap.VALIDATION,
        when="all since the update; `other` if it comes in each step",
    ),
}
"""What moves a loop that is recorded from outside through its phases, in the order of a step."""
