"""The page of the documentation about what differs between doors.

Written by `PYTHONPATH=.:tests python -m support.conformance.page`, and never by hand.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path

from support.conformance.definitions import DEFINITIONS
from support.conformance.doors import DOORS
from support.conformance.stories import LACKS, STORIES


PAGE = Path(__file__).parents[3] / "docs" / "contributing" / "conformance.md"

HEAD = """\
# The same records through every door

A training can be measured through four doors: a `LoopMonitor`, `TrainPerf` under Lightning,
`TrainPerfCallback` under a Hugging Face Trainer, and from outside under `trainperf run`.
`tests/conformance` tells each of them the same stories. A story is a training as data: the real
framework trains it, and the code of its user (loader, forward, backward, update, callbacks,
validation, checkpoint) moves a fake clock by amounts that are known. So the records are known to
the nanosecond, and they are compared field by field: the host time of each phase of each step,
tags, micro-batches, facts, gaps, notes, and how the fit ended.

The same folder holds that every option of a fit does the same in every door, that nothing is left
behind, and that a run is closed or can be read however its process ends.

This page is made from the tables in `tests/support/conformance`:
`PYTHONPATH=.:tests python -m support.conformance.page`.
"""


def page(endings: Iterable[tuple[str, str, str]]) -> str:
    """The whole page.

    Args:
        endings: Door, ending, and why its run says something else there.
    """
    told = [
        (story.name, *("—" if (story.name, door.name) in LACKS else "✓" for door in DOORS))
        for story in STORIES
    ]
    return "\n".join(
        [
            HEAD,
            "## Stories",
            "",
            *_table(("story", *(door.name for door in DOORS)), told),
            "",
            "A story that a door has no such thing of:",
            "",
            *_table(
                ("story", "door", "why"),
                [(story, door, why) for (story, door), why in LACKS.items()],
            ),
            "",
            "## Differences by definition",
            "",
            "A difference that is not in this table is a defect.",
            "",
            *_table(
                ("door", "what differs"),
                [(" and ".join(each.doors), each.sentence) for each in DEFINITIONS],
            ),
            "",
            "Of ends of a process:",
            "",
            *_table(("door", "end", "why the run says something else"), endings),
            "",
        ]
    )


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(line)} |" for line in lines]


if __name__ == "__main__":
    from support.conformance.endings import differing

    PAGE.write_text(page(differing()))
