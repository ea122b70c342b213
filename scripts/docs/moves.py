"""Pictures of what moves a loop through its phases: one per framework, drawn from its own table.

A block is the slot that is current from the beginning of an event to its end; a band below it is
the one that goes on from there.  Where neither is drawn, what went on before goes on.
"""

from collections.abc import Callable, Iterator, Mapping
from functools import partial
from html import escape
from pathlib import Path

from scripts.docs.palette import COLOURS
from scripts.docs.tables import table
from trainperf.core.formatting.html.palette import PHASE_COLOURS
from trainperf.core.phases import Gap, Phase
from trainperf.huggingface.moves import MOVES as OF_HUGGING_FACE
from trainperf.lightning.actions import MOVES as OF_ROLES
from trainperf.lightning.actions import ROLES, VALIDATION_HOOKS
from trainperf.loop.moves import Move
from trainperf.loop.phase_contexts import MOVES as OF_MONITOR
from trainperf.plugins.outside_moves import MOVES as OF_OUTSIDE


FOLDER = Path("concepts")

WIDTH, LEFT, BLOCK, TEXT = 400, 12, 96, 122
"""Pixels: of the picture, and of its columns."""

EVENT, BAND, SPACE = 26, 15, 5
"""Heights: of an event, of what goes on after it, between two."""

CHARACTERS = 40
"""Of an event's name in a line."""


def of_lightning() -> dict[str, Move]:
    """By action, in the order of the table of roles; the hooks that share a role at the end."""
    moves = {
        f"[{kind}].{hook}" if kind not in ("", "*") else hook: OF_ROLES[role]
        for (kind, hook), role in ROLES.items()
        if role in OF_ROLES
    }
    return {
        **moves,
        f"{VALIDATION_HOOKS}… (any other)": OF_ROLES["validation"],
        "any other hook that is overridden": OF_ROLES["hook"],
    }


FRAMEWORKS: Mapping[str, Mapping[str, Move]] = {
    "lightning": of_lightning(),
    "hugging_face": OF_HUGGING_FACE,
    "loop_monitor": OF_MONITOR,
    "outside": OF_OUTSIDE,
}
"""The events of each and what they move, in the order of a step."""


def pictures() -> dict[Path, str]:
    """The picture of each framework, by its path below `docs/`."""
    return {FOLDER / f"moves_{name}.svg": picture(moves) for name, moves in FRAMEWORKS.items()}


def tables() -> dict[str, Callable[[], str]]:
    """The table of each, by its name in the markers of a page."""
    return {f"moves_{name}": partial(_table, moves) for name, moves in FRAMEWORKS.items()}


def _table(moves: Mapping[str, Move]) -> str:
    rows = [
        (f"`{event}`", _label(move.during), _label(move.after) or "as before", move.when)
        for event, move in moves.items()
    ]
    return table(("event", "while it lasts", "from its end on", "where it depends"), rows)


def _label(slot: Phase | Gap | None) -> str:
    return "" if slot is None else f"`{slot.label}`"


def picture(moves: Mapping[str, Move]) -> str:
    """The events from top to bottom, as an SVG that is legible when it is 400 pixels wide."""
    parts, y = [], SPACE + 4
    for event, move in moves.items():
        drawn, y = _event(event, move, y)
        parts += [*drawn]
        y += SPACE
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 4}" width="{WIDTH}" '
        'role="img" font-family="system-ui, sans-serif">\n'
        "<title>Which event moves which phase or gap</title>\n"
        f'<rect width="100%" height="100%" rx="8" fill="{COLOURS["card"]}" '
        f'stroke="{COLOURS["line"]}"/>\n' + "\n".join(parts) + "\n</svg>\n"
    )


def _event(event: str, move: Move, y: int) -> tuple[list[str], int]:
    parts = list(_name(event, y))
    if move.during is not None:
        parts.append(_block(move.during, y, EVENT, BLOCK))
    else:
        parts.append(
            f'<circle cx="{LEFT + BLOCK - 4}" cy="{y + EVENT / 2:.0f}" r="4" '
            f'fill="{COLOURS["ink"]}"/>'
        )
    y += EVENT
    if move.after is not None and move.after is not move.during:
        parts.append(_block(move.after, y, BAND, BLOCK - 8))
        y += BAND
    return parts, y


def _name(event: str, y: int) -> Iterator[str]:
    kind, dot, hook = event.rpartition("].")
    lines = [kind + dot, hook] if dot and len(event) > CHARACTERS else [event]
    for row, line in enumerate(lines):
        place = y + EVENT / 2 + 4 + 12 * row - 6 * (len(lines) - 1)
        yield (
            f'<text x="{TEXT}" y="{place:.0f}" font-size="11.5" fill="{COLOURS["ink"]}" '
            f'font-family="ui-monospace, monospace">{escape(line)}</text>'
        )


def _block(slot: Phase | Gap, y: int, height: int, width: int) -> str:
    fill = PHASE_COLOURS[slot][0] if isinstance(slot, Phase) else COLOURS["page"]
    ink = COLOURS["ink"]
    size = 11 if height == EVENT else 10
    left = LEFT + BLOCK - width
    dashes = "" if isinstance(slot, Phase) else ' stroke-dasharray="3 2"'
    return (
        f'<rect x="{left}" y="{y}" width="{width}" height="{height}" fill="{fill}" '
        f'fill-opacity=".45" stroke="{fill if isinstance(slot, Phase) else ink}"{dashes}/>'
        f'<text x="{left + width / 2:.0f}" y="{y + height / 2 + 4:.0f}" font-size="{size}" '
        f'text-anchor="middle" fill="{ink}">{slot.label}</text>'
    )
