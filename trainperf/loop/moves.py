"""Rows of an adapter's table: which event of a framework moves which phase or gap of the step.

The adapters take the slots that they switch to from such a table, and the pictures of the
documentation are drawn from the same one.
"""

from dataclasses import dataclass

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
        return _declared(self.after if self.during is None else self.during)

    @property
    def phase(self) -> Phase:
        """As `slot`, of an event inside a step."""
        return Phase(self.slot)

    @property
    def gap(self) -> Gap:
        """As `slot`, of an event between steps."""
        return Gap(self.slot)

    @property
    def next_phase(self) -> Phase:
        """The phase that goes on from its end."""
        return Phase(_declared(self.after))


def _declared(slot: Phase | Gap | None) -> int:
    assert slot is not None  # noqa: S101 asked by the code of an event that has one
    return int(slot)
