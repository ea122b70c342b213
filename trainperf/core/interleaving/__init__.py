"""Two trainings that run in turns, a few steps each: what disturbs one disturbs the other.

A `Referee` in the process that launched both lets one train at a time; in each of them a `Baton`
waits for its turn.  They meet at the Unix socket named in the environment variable `VARIABLE`.
Nothing here imports torch.
"""

from trainperf.core.interleaving.baton import Baton
from trainperf.core.interleaving.referee import STEPS, Referee, TurnsSoFar
from trainperf.core.interleaving.wire import (
    VARIABLE,
    Participant,
    directory,
    new_address,
    this_participant,
)


__all__ = [
    "STEPS",
    "VARIABLE",
    "Baton",
    "Participant",
    "Referee",
    "TurnsSoFar",
    "directory",
    "new_address",
    "this_participant",
]
