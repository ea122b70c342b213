"""After a fit everything that was replaced is there again, the same object, in every door."""

from pathlib import Path

import pytest
from support.conformance.doors import DOORS, Door, tell
from support.conformance.process_state import left_on, of_process, replaced
from support.conformance.story import Story
from support.frozen import frozen


__all__ = ["frozen"]


ENDS = (
    Story(name="an end", accumulation=2),
    Story(name="an exception", accumulation=2, raises=("forward", 5)),
    Story(name="Ctrl-C", raises=("backward", 5), error=KeyboardInterrupt),
    Story(name="two ends", fits=2),
    Story(name="an overflow", overflows=frozenset({1})),
)


@pytest.mark.parametrize("kind", DOORS, ids=lambda kind: kind.name)
@pytest.mark.parametrize("story", ENDS, ids=lambda story: story.name)
def test_nothing_is_left_behind(
    story: Story, kind: type[Door], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hooks, methods, loaders, profilers, threads, children, modes and tools."""
    before = of_process()
    door = tell(story, kind, tmp_path, monkeypatch)

    assert not replaced(before, of_process())
    assert not left_on(door.parts)
    for name, (read, original) in door.replaceable.items():
        assert read() is original, name
