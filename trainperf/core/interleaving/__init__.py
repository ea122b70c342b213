"""Two trainings at once that take turns, a few steps each: what disturbs one disturbs the other.

A `Referee` in the process that launched them lets one train at a time; in each of them a `Baton`
waits for its turn.  They meet at the socket that the environment variable `ASKED` names.  Nothing
here imports torch.
"""

from trainperf.core.interleaving.baton import Baton
from trainperf.core.interleaving.environment import ASKED, Place, directory, here, new_address
from trainperf.core.interleaving.referee import STEPS, Referee


__all__ = ["ASKED", "STEPS", "Baton", "Place", "Referee", "directory", "here", "new_address"]
