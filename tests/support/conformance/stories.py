"""The stories that are told through every door, and what some doors have no such thing of."""

from collections.abc import Iterator

from support.conformance.definitions import DEFINITIONS, Events
from support.conformance.doors import DOORS, Door
from support.conformance.records import Account, Records
from support.conformance.story import Story, events, fits_of


RAISED = {
    "loader": 5,
    "copy": 5,
    "forward": 5,
    "backward": 5,
    "update": 5,
    "callback": 5,
    "validation_loader": 3,
    "validation_forward": 3,
}
"""The event of each place that raises."""

STORIES: tuple[Story, ...] = (
    Story(name="several epochs", epochs=3),
    Story(name="one step", epochs=1, batches=1),
    Story(name="accumulation with a short last group", batches=5, accumulation=2),
    Story(name="callbacks after every micro-batch", batches=5, accumulation=3, talks=True),
    Story(name="two optimizers", optimizers=2),
    Story(name="updates that a GradScaler skips", overflows=frozenset({2, 3, 6})),
    Story(
        name="a GradScaler and accumulation", batches=5, accumulation=2, overflows=frozenset({1, 4})
    ),
    Story(name="validation inside an epoch", batches=6, validates=3),
    Story(name="validation at the end of an epoch", validates=4),
    Story(name="checkpoints", batches=5, saves=2),
    Story(name="a checkpoint after a validation", batches=6, validates=3, saves=3),
    Story(name="a checkpoint inside a validation", batches=6, validates=3, saves_inside=True),
    Story(name="a loader of unknown length", batches=5, loader="unknown"),
    Story(name="no DataLoader at all", batches=5, loader="none"),
    *(
        Story(
            name=f"an exception in the {place.replace('_', ' ')}",
            validates=2 if "validation" in place else 0,
            raises=(place, number),
        )
        for place, number in RAISED.items()
    ),
    Story(name="an exception amid a group", batches=6, accumulation=3, raises=("forward", 7)),
    Story(name="an exception in the first step", raises=("backward", 0)),
    Story(name="Ctrl-C", raises=("forward", 5), error=KeyboardInterrupt),
    Story(name="a second fit", fits=2),
    Story(name="a fit that resumes from a checkpoint", resumes=True),
)

LACKS = {
    ("two optimizers", "Hugging Face"): "a Trainer has one optimizer",
    ("a checkpoint inside a validation", "Hugging Face"): (
        "a Trainer writes its checkpoint after an evaluation, never inside"
    ),
    ("a checkpoint after a validation", "Lightning"): (
        "a Trainer writes its checkpoint before a validation, or inside"
    ),
    ("an exception in the first step", "from outside"): (
        "the recording begins with the end of the first update"
    ),
    ("one step", "from outside"): "the recording begins with the end of the first update",
}
"""What a door has no such thing of, and why."""


def told() -> Iterator[tuple[Story, type[Door]]]:
    """Every story with every door that can tell it."""
    for story in STORIES:
        for door in DOORS:
            if (story.name, door.name) not in LACKS:
                yield story, door


def expected(story: Story, door: type[Door]) -> list[Records]:
    """What each fit of the story must leave behind this door."""
    fits: list[Events] = [events(each, first) for each, first in fits_of(story)]
    notes = set()
    for definition in DEFINITIONS:
        if door.name in definition.doors and definition.where(story):
            fits = definition.rewrite(fits, story)
            notes |= set(definition.notes(story))
    records = [Account(story).of(each) for each in fits]
    for each in records:
        each.notes = set(notes)
    return records
