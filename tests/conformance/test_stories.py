"""One story through every door: the same records, field by field, to the nanosecond."""

from pathlib import Path

import pytest
from support.conformance.doors import Door, tell
from support.conformance.records import differences, of_run
from support.conformance.stories import expected, told
from support.conformance.story import Story
from support.frozen import frozen


__all__ = ["frozen"]


@pytest.mark.parametrize(
    ("story", "kind"),
    [pytest.param(story, kind, id=f"{story.name}-{kind.name}") for story, kind in told()],
)
def test_the_records_are_those_of_the_story(
    story: Story, kind: type[Door], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Phases, tags, micro-batches, facts, gaps, notes and how it ended."""
    left = [of_run(run) for run in tell(story, kind, tmp_path, monkeypatch).runs()]
    must = expected(story, kind)

    assert len(left) == len(must)
    for records, truth in zip(left, must, strict=True):
        assert not differences(records, truth)
