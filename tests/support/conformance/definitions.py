"""What doors do not have, and where their records differ because that is how they are defined."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from support.conformance.story import (
    COMPLETE,
    EPOCH,
    FETCH,
    MARKS,
    MICRO_BATCH,
    SHORT,
    UNTOLD,
    VALIDATED,
    VALIDATION,
    Event,
    Story,
)


Events = list[Event]
Fits = list[Events]


def one_ahead(events: Events, story: Story) -> Events:
    """Each batch is fetched while the one before it is handed on."""
    waits = iter([event for event in events if event.place == "loader"])
    moved: Events = []
    left = 0
    for event in events:
        if event.place == "loader":
            if not left:
                moved.append(next(waits))
                left = story.batches
        elif event.place == "copy":
            moved.append(event)
            left -= 1
            if left:
                moved.append(next(waits))
        else:
            moved.append(event)
    return moved


def one_ahead_from_startup(events: Events, story: Story) -> Events:
    """So that the first one comes before the first step."""
    moved = one_ahead(events, story)
    place = moved.index(FETCH)
    first = replace(moved.pop(place + 1), slot="startup")
    return [*moved[:place], first, *moved[place:]]


def between_is_other(events: Events, story: Story) -> Events:
    """Of callbacks between micro-batches."""
    return [replace(e, slot="other") if e.place == "between" else e for e in events]


def no_groups(events: Events, story: Story) -> Events:
    """Nobody tells how many micro-batches a step should have."""
    return [event for event in events if event is not SHORT]


def waits_from_update(events: Events, story: Story) -> Events:
    """Whatever comes before a forward waits for it."""
    unheard = ("loader", "copy", "callback", "between", "save", "epoch_end", "startup")
    return [
        replace(event, slot="data_wait") if event.place in unheard else event
        for event in events
        if event is not EPOCH
    ]


def steps_from_update(events: Events, story: Story) -> Events:
    """A step begins where the one before it was complete; the first one is not seen."""
    first = next(place for place, event in enumerate(events) if event is COMPLETE)
    moved: Events = []
    for event in events[first + 1 :]:
        if event is not FETCH:
            moved.append(event)
        if event is COMPLETE:
            moved.append(FETCH)
    return [FETCH, *moved]


def validations_to_forward(events: Events, story: Story) -> Events:
    """A validation is all between the step before it and the next forward."""
    moved: Events = []
    waiting: Events = []
    for event in events:
        if event.place == "forward" or event in (MICRO_BATCH, COMPLETE):
            moved += _validation(waiting)
            waiting = []
            moved.append(event)
        else:
            waiting.append(event)
    return moved + _validation(waiting)


def _validation(waiting: Events) -> Events:
    if VALIDATION not in waiting:
        return waiting
    timed = [replace(event, slot="validation") for event in waiting if event not in MARKS]
    return [*(mark for mark in waiting if mark is FETCH), VALIDATION, *timed, VALIDATED]


def told_when_complete(events: Events, story: Story) -> Events:
    """The loss of a step is that of the micro-batch that completes it."""
    following = [*events[1:], EPOCH]
    return [
        UNTOLD if event is MICRO_BATCH and after not in (COMPLETE, SHORT) else event
        for event, after in zip(events, following, strict=True)
    ]


def of_the_second_loop(fits: Fits, story: Story) -> Fits:
    """Another optimizer is that of another loop with its second update in a row."""
    first, second = fits
    place = second.index(COMPLETE)
    following = place + 1 + second[place + 1 :].index(COMPLETE)
    lost = [replace(e, slot="data_wait") for e in second[: following + 1] if e not in MARKS]
    return [[*first, *lost], second[place + 1 :]]


def amid_first_step(events: Events, story: Story) -> Events:
    """Of the rest of the first step nothing but time is heard."""
    first = next(place for place, event in enumerate(events) if event.place == "update")
    complete = events.index(COMPLETE)
    rest = [replace(e, slot="data_wait") for e in events[first + 1 : complete] if e not in MARKS]
    return [COMPLETE, *rest, MICRO_BATCH, *events[complete:]]


def skipped_at_forward(events: Events, story: Story) -> Events:
    """A skipped update is noticed at the next forward."""
    moved: Events = []
    updated, over = False, []
    for event in events:
        updated = updated or event.place == "update"
        if event is COMPLETE:
            if not updated:
                over = [moved.pop(), COMPLETE]
                continue
            updated = False
        if event.place == "forward":
            moved += over
            over = []
        moved.append(event)
    return moved


def fetched_in_groups(events: Events, story: Story) -> Events:
    """All batches of a step are fetched before its first forward."""
    moved: Events = []
    fetches: Events = []
    rest: Events = []
    inside = False
    for event in events:
        inside = inside or event is FETCH
        fetches_now = event is FETCH or event.place in ("loader", "copy")
        (moved if not inside else fetches if fetches_now else rest).append(event)
        if event is COMPLETE:
            moved += [*fetches, *rest]
            fetches, rest, inside = [], [], False
    return [*moved, *fetches, *rest]


def late_callbacks(events: Events, story: Story) -> Events:
    """Callbacks after ours are part of a pause, or of a wait, that was announced to ours."""
    follows = {VALIDATION: "validation", EPOCH: "epoch_boundary", FETCH: "data_wait"}
    pauses = follows if story.loader == "none" else {VALIDATION: "validation"}
    moved: Events = []
    for event in events:
        before = moved[-1] if moved else event
        if before.place == "callback" and event.place == "save":
            moved[-1] = replace(before, slot="checkpoint")
        if before.place == "callback" and event in pauses:
            moved[-1:] = [event, replace(before, slot=pauses[event])]
        else:
            moved.append(event)
    return moved


def each(rewrite: Callable[[Events, Story], Events]) -> Callable[[Fits, Story], Fits]:
    """For all fits of a story."""
    return lambda fits, story: [rewrite(events, story) for events in fits]


@dataclass(frozen=True, kw_only=True)
class Definition:
    """Where the records of some doors are not those of a `LoopMonitor`."""

    doors: tuple[str, ...]
    sentence: str
    rewrite: Callable[[Fits, Story], Fits]
    where: Callable[[Story], bool] = bool
    """The stories in which that is to be seen."""
    notes: Callable[[Story], tuple[str, ...]] = lambda _: ()
    """Under which names the run says so."""


DEFINITIONS: Sequence[Definition] = (
    Definition(
        doors=("Hugging Face",),
        sentence="Accelerate fetches each batch while it hands on the one before it: a step's data "
        "wait is that for the batch after its own, and the first step of an epoch waits for two.",
        rewrite=each(one_ahead),
        where=lambda story: story.loader != "none",
    ),
    Definition(
        doors=("Lightning",),
        sentence="So does Lightning where the loader has no length; the very first batch comes "
        "before the first step, and is `startup`.",
        rewrite=each(one_ahead_from_startup),
        where=lambda story: story.loader == "unknown",
    ),
    Definition(
        doors=("Hugging Face",),
        sentence="A Trainer fetches all batches of an update before its first forward.",
        rewrite=each(fetched_in_groups),
        where=lambda story: story.accumulation > 1,
    ),
    Definition(
        doors=("Hugging Face",),
        sentence="A Trainer tells us of a step before it tells the callbacks that come after ours, "
        "and no event follows them: they are part of an evaluation, a checkpoint, or a wait for a "
        "loader that is not Accelerate's, that comes next.",
        rewrite=each(late_callbacks),
        where=lambda story: (
            bool(story.validates or story.saves or story.resumes) or story.loader == "none"
        ),
        notes=lambda story: ("data_wait",) if story.loader == "none" else (),
    ),
    Definition(
        doors=("Hugging Face",),
        sentence="No event tells where callbacks between two micro-batches of a step end: they "
        "are `other`.",
        rewrite=each(between_is_other),
        where=lambda story: story.talks,
    ),
    Definition(
        doors=("LoopMonitor", "from outside"),
        sentence="Nobody tells how many micro-batches a step should have: a short last group has "
        "no tag.",
        rewrite=each(no_groups),
        where=lambda story: story.accumulation > 1,
    ),
    Definition(
        doors=("LoopMonitor", "Hugging Face"),
        sentence="A step that was never complete has no loss: `end_step` was not told it, or the "
        "Trainer has divided it by micro-batches that never came.",
        rewrite=each(told_when_complete),
        where=lambda story: story.accumulation > 1 and story.raises is not None,
    ),
    Definition(
        doors=("from outside",),
        sentence="An update that a scaler has skipped is noticed at the next forward: the wait for "
        "that batch is part of the step.",
        rewrite=each(skipped_at_forward),
        where=lambda story: story.overflows is not None,
    ),
    Definition(
        doors=("from outside",),
        sentence="Another optimizer is that of a second loop with its second update in a row: two "
        "steps of it are in no record.",
        rewrite=of_the_second_loop,
        where=lambda story: story.fits > 1 or story.resumes,
    ),
    Definition(
        doors=("from outside",),
        sentence="Where several optimizers take turns, the recording begins amid the first step: "
        "of what is left of that nothing is heard but the time.",
        rewrite=each(amid_first_step),
        where=lambda story: story.optimizers > 1,
    ),
    Definition(
        doors=("from outside",),
        sentence="A step begins with the end of the update before it, and the recording with that "
        "of the first: that step is in no record, and what follows the last update is `shutdown`.",
        rewrite=each(steps_from_update),
    ),
    Definition(
        doors=("from outside",),
        sentence="Nothing tells of copies, callbacks, checkpoints and epochs: between an update "
        "and the next forward all is `data_wait`, but where Python tells of loaders (from 3.12 "
        "on): there the rest is `other`.",
        rewrite=each(waits_from_update),
        notes=lambda _: ("data_wait",),
    ),
    Definition(
        doors=("from outside",),
        sentence="A validation is all between the update before it and the next forward that is "
        "trained.",
        rewrite=each(validations_to_forward),
        where=lambda story: story.validates > 0,
    ),
)
