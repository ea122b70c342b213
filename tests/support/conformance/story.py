"""A training as data: what happens in it, how long each event takes, and where it raises."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal


ROWS = 2
"""Samples in a batch."""
TOKENS = 8
"""Tokens in a row, padding included."""
EVALUATED = 2
"""Batches of a validation."""

PLACES = (
    "startup",
    "loader",
    "copy",
    "forward",
    "backward",
    "update",
    "callback",
    "between",
    "epoch_end",
    "validation_loader",
    "validation_forward",
    "save",
)
"""Where the code of a user takes time; frameworks take none."""


@dataclass(frozen=True, kw_only=True)
class Story:
    """What happens in a training.  Steps, batches and events are counted from 0."""

    name: str
    epochs: int = 2
    batches: int = 4
    """In each epoch."""
    accumulation: int = 1
    """Micro-batches of a step; the last group of an epoch may be shorter."""
    optimizers: int = 1
    """Each with a forward and a backward of its own in every batch."""
    overflows: frozenset[int] | None = None
    """Steps whose gradients overflow under a `GradScaler`; `None` for no scaler."""
    validates: int = 0
    """Steps after which a validation comes back; 0 for none."""
    saves: int = 0
    """Steps after which a checkpoint is written; 0 for none."""
    saves_inside: bool = False
    """Whether each validation writes a checkpoint, too, before it ends."""
    loader: Literal["known", "unknown", "none"] = "known"
    """A `DataLoader` with a length, one without, or batches that are there and stay there."""
    talks: bool = False
    """Whether a user's callback takes time between the micro-batches of a step, too."""
    raises: tuple[str, int] | None = None
    """Place and number of the event that raises *error* in the end."""
    error: type[BaseException] = MemoryError
    fits: int = 1
    """Trainings one after the other in the same process."""
    resumes: bool = False
    """Whether the second goes on, in its second epoch, from the checkpoint of the first."""


def fits_of(story: Story) -> list[tuple[Story, int]]:
    """What each of its fits tells, and the epoch in which it begins."""
    if not story.resumes:
        return [(story, 0)] * story.fits
    before = replace(story, epochs=1, saves=story.batches)
    return [(before, 0), (story, 1)]


def amount_ns(place: str, number: int) -> int:
    """How long an event takes: no two sums of a few of them are the same."""
    return 1_000_000 * 3 ** PLACES.index(place) + 101 * number


def loss_of(batch: int) -> float:
    """The loss of a batch, exact in half precision, too."""
    return 1.0 + batch / 4


def tokens_of(batch: int) -> int:
    """Those of a row that are no padding."""
    return 1 + batch % TOKENS


@dataclass(frozen=True)
class Event:
    """An event that takes time, or a mark, which takes none and has no number."""

    place: str
    number: int = -1
    slot: str = ""
    """Phase or gap to which its time belongs."""
    batch: int = -1
    """The batch that a forward is of."""


FETCH = Event("the loader is asked")
MICRO_BATCH = Event("a micro-batch is over")
UNTOLD = Event("a micro-batch is over whose loss nobody tells")
SHORT = Event("fewer micro-batches were in the step than it should have")
COMPLETE = Event("so is the step")
VALIDATION, VALIDATED = Event("a validation begins"), Event("it is over")
EPOCH = Event("the epoch is over")
MARKS = (FETCH, MICRO_BATCH, UNTOLD, SHORT, COMPLETE, VALIDATION, VALIDATED, EPOCH)

SLOTS = {
    "startup": "startup",
    "loader": "data_wait",
    "copy": "h2d",
    "forward": "forward",
    "backward": "backward",
    "update": "optimizer",
    "callback": "callbacks",
    "between": "callbacks",
    "epoch_end": "epoch_boundary",
    "validation_loader": "validation",
    "validation_forward": "validation",
    "save": "checkpoint",
}
"""Where the time of each place belongs, wherever no definition says otherwise."""


def events(story: Story, first_epoch: int = 0) -> list[Event]:
    """All of one fit, in their order, as if nothing raised."""
    numbers = dict.fromkeys(PLACES, 0)
    numbered = []
    batch = -1
    for place in _places(story, first_epoch):
        if isinstance(place, Event):
            batch += place is FETCH
            numbered.append(place)
            continue
        numbered.append(Event(place, numbers[place], SLOTS[place], batch))
        numbers[place] += 1
    return numbered


def _places(story: Story, first_epoch: int) -> Iterator[str | Event]:
    yield "startup"
    steps = 0
    for _ in range(first_epoch, story.epochs):
        for batch in range(story.batches):
            yield FETCH
            if story.loader != "none":
                yield from ("loader", "copy")
            closes = (batch + 1) % story.accumulation == 0 or batch + 1 == story.batches
            for _ in range(story.optimizers):
                yield from ("forward", "backward")
                if closes and steps not in (story.overflows or ()):
                    yield "update"
            yield MICRO_BATCH
            if closes:
                steps += 1
                yield from _after(story, steps, short=(batch + 1) % story.accumulation > 0)
            elif story.talks:
                yield "between"
        yield EPOCH
        yield "epoch_end"


def _after(story: Story, steps: int, *, short: bool) -> Iterator[str | Event]:
    if short:
        yield SHORT
    yield COMPLETE
    yield "callback"
    if story.validates and steps % story.validates == 0:
        yield VALIDATION
        for _ in range(EVALUATED):
            yield from ("validation_loader", "validation_forward")
        if story.saves_inside:
            yield "save"
        yield VALIDATED
    if story.saves and steps % story.saves == 0:
        yield "save"
