"""Catalogue of changes: what to do about causes, what it takes, and what it usually realises.

Words have places: `{loop.…}` is what the kind of loop calls a thing, the others are the detector's.
A number without a source is not here: `realises` is the share of the seconds that its cause removes
which the change saves, by the law itself (1), by what is left on purpose (a callback every tenth
step), or by the twins of `tests/faults` in which it was made (`docs/research/accuracy.md`).  Where
none of these tells, it is `None`: the finding then says what is gained at most, and not about what.

To add one: an entry in the file of its subject.
"""

from collections.abc import Mapping

from trainperf.analysis.diagnosis.changes import (
    broken,
    compiler,
    fit,
    host,
    loader,
    machine,
    memory,
    operators,
    post_training,
    ranks,
)
from trainperf.analysis.diagnosis.changes.change import Change


__all__ = ["BY_ID", "CHANGES", "Change", "changes_of"]

CHANGES: tuple[Change, ...] = (
    *loader.CHANGES,
    *host.CHANGES,
    *operators.CHANGES,
    *ranks.CHANGES,
    *fit.CHANGES,
    *compiler.CHANGES,
    *machine.CHANGES,
    *memory.CHANGES,
    *broken.CHANGES,
    *post_training.CHANGES,
)
"""All of them."""

BY_ID: Mapping[str, Change] = {change.id: change for change in CHANGES}


def changes_of(cause: str) -> tuple[Change, ...]:
    """Those that remove a cause, or a part of it."""
    return tuple(change for change in CHANGES if cause in change.of)
