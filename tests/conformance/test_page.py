"""The page about the doors says what the tables of the suite say."""

from support.conformance.doors import DOORS
from support.conformance.endings import differing
from support.conformance.page import PAGE, page
from support.conformance.stories import DEFINITIONS, LACKS, STORIES


def test_the_page_is_the_tables() -> None:
    """`PYTHONPATH=.:tests python -m support.conformance.page` writes it."""
    assert PAGE.read_text() == page(differing())


def test_the_tables_speak_of_stories_and_doors_that_there_are() -> None:
    """And every definition is seen in a story of each of its doors."""
    names, doors = {story.name for story in STORIES}, {door.name for door in DOORS}
    assert {story for story, _ in LACKS} <= names
    assert {door for _, door in LACKS} <= doors
    for definition in DEFINITIONS:
        for door in definition.doors:
            assert any(
                definition.where(story) and (story.name, door) not in LACKS for story in STORIES
            ), definition.sentence
