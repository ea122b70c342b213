"""Rows of an adapter's table: which event of a framework moves which phase or gap of the step.

The adapters take the slots that they switch to from such a table, and the pictures of the
documentation are drawn from the same one.
"""

from dataclasses import dataclass
from typing import cast

from trainperf.core.phases import Gap, Phase


@dataclass(frozen=True, slots=True)
class Move:
    """What an event of a framework moves.

    One that moves nothing by itself has neither slot: it gives back what an earlier event took.
    """

    during: Phase | Gap | None = None
    """Current from its beginning to its end; `None` where it is a moment."""
    after: Phase | Gap | None = None
    """Current from its end on; `None` where the slot before it goes on."""
    when: str = ""
    """The condition, where code decides; a phrase without a full stop."""

    @property
    def slot(self) -> int:
        """The first slot that it makes current, as the timeline counts them."""
        return self.next_slot if self.during is None else int(self.during)

    @property
    def next_slot(self) -> int:
        """The slot that goes on from its end, of an event that has one."""
        return int(cast("Phase | Gap", self.after))
