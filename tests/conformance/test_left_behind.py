"""After a fit everything that was replaced is there again, the same object, in every door."""

from pathlib import Path

import pytest
from support.conformance.doors import DOORS, Door, tell
from support.conformance.process_state import left_on, of_process, replaced
from support.conformance.story import Story


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


@pytest.mark.parametrize("kind", DOORS, ids=lambda kind: kind.name)
def test_something_was_there_meanwhile(
    kind: type[Door], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or it would be no wonder that nothing is left."""
    before, meanwhile = of_process(), []

    def look(_: object, door: Door) -> None:
        names = [name for name, (read, was) in door.replaceable.items() if read() is not was]
        meanwhile.append({*names, *replaced(before, of_process())})

    tell(Story(name="a look", epochs=1), kind, tmp_path, monkeypatch, look=look)
    assert meanwhile[0] >= {"gc"}
    assert meanwhile[0] >= SEEN[kind.name]


SEEN = {
    "LoopMonitor": set(),
    "Lightning": {"profiler"},
    "Hugging Face": {"base_dataloader", "backward"},
    "from outside": {"_global_forward_pre_hooks"},
}
"""What must be seen in the middle of a fit."""
