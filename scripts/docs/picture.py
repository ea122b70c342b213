"""Picture of the architecture as SVG, drawn from the imports of the package: rooms on floors.

A room is a package or module directly below `trainperf`; it stands one floor above the highest room
it imports.  An arrow is drawn where no longer way of arrows leads to the same room.
"""

import ast
import itertools
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

import trainperf
from scripts.docs.palette import COLOURS


PACKAGE = Path(trainperf.__file__).parent
DOORS = ("lightning", "loop", "benchmark", "smoke", "remedies", "testing", "commands")
"""What people import or type; the others are inside."""

CARD, HEIGHT, GAP, FLOOR, MARGIN = 206, 82, 26, 126, 24
"""Pixels: a room's width and height, between rooms, from floor to floor, around it all."""

PASSAGE = 14
"""Width kept free for an arrow that passes a floor."""

SWEEPS = 12
"""Rounds of putting each room near the middle of those it is joined to."""

Graph = Mapping[str, frozenset[str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """A box of the picture."""

    name: str
    about: str
    """First sentence of its docstring."""
    torch: bool
    """Whether anything in it imports torch or Lightning."""


def architecture() -> str:
    """The picture of the imported package."""
    rooms, imports = survey(PACKAGE)
    floors = levels(imports)
    return _draw(rooms, reduced(imports), floors)


def survey(package: Path) -> tuple[dict[str, Room], Graph]:
    """Rooms by name, and what each imports of the others."""
    rooms, imports = {}, {}
    for path in sorted(package.iterdir()):
        name = path.stem
        if name.startswith("_") or not (path.suffix == ".py" or (path / "__init__.py").is_file()):
            continue
        files = [path] if path.is_file() else sorted(path.rglob("*.py"))
        names = {module for file in files for module in _imported(file)}
        about = ast.get_docstring(_parsed(path if path.is_file() else path / "__init__.py")) or ""
        rooms[name] = Room(
            name=name,
            about=about.split("\n\n")[0].replace("\n", " ").replace("`", ""),
            torch=any(module.partition(".")[0] in {"torch", "lightning"} for module in names),
        )
        inside = {module.split(".")[1] for module in names if module.startswith("trainperf.")}
        imports[name] = frozenset(inside - {name})
    return rooms, {name: named & rooms.keys() for name, named in imports.items()}


def levels(imports: Graph) -> dict[str, int]:
    """The floor of each room: 0 imports nothing, others stand on what they import.

    Raises:
        ValueError: Rooms import each other in a circle.
    """
    floors: dict[str, int] = {}
    while len(floors) < len(imports):
        ready = [n for n, below in imports.items() if n not in floors and below <= floors.keys()]
        if not ready:
            raise ValueError(f"a circle of imports among {sorted(imports.keys() - floors.keys())}")
        level = {name: 1 + max((floors[b] for b in imports[name]), default=-1) for name in ready}
        floors.update(level)
    return floors


def reduced(imports: Graph) -> Graph:
    """Without the arrows that a longer way of arrows explains."""
    reach: dict[str, frozenset[str]] = {}
    for name in sorted(imports, key=levels(imports).__getitem__):
        reach[name] = imports[name].union(*(reach[below] for below in imports[name]))
    return {
        name: frozenset(b for b in below if not any(b in reach[other] for other in below - {b}))
        for name, below in imports.items()
    }


def _imported(file: Path) -> Iterator[str]:
    for node in ast.walk(_parsed(file)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            if node.module == "trainperf":
                yield from (f"trainperf.{alias.name}" for alias in node.names)


def _parsed(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _draw(rooms: Mapping[str, Room], arrows: Graph, floors: Mapping[str, int]) -> str:
    chains = [_chain(a, b, floors) for a in sorted(arrows) for b in sorted(arrows[a])]
    rows = _ordered(floors, chains)
    width = max(sum(_width(node) + GAP for node in row) for row in rows) + 2 * MARGIN
    height = len(rows) * FLOOR + 2 * MARGIN
    middle = _placed(rows, width)
    top = {
        node: MARGIN + (len(rows) - 1 - level) * FLOOR
        for level, row in enumerate(rows)
        for node in row
    }
    parts = [_path(chain, middle, top) for chain in chains]
    parts += [_card(rooms[name], middle[name], top[name]) for name in sorted(rooms)]
    parts.append(_legend(height - MARGIN + 8))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height + 16}" role="img" '
        'font-family="system-ui, sans-serif">\n'
        "<title>The rooms of trainperf, and what imports what</title>\n"
        f'<rect width="100%" height="100%" rx="10" fill="{COLOURS["page"]}"/>\n'
        + "\n".join(parts)
        + "\n</svg>\n"
    )


def _chain(upper: str, lower: str, floors: Mapping[str, int]) -> tuple[str, ...]:
    """An arrow as a way through the floors between its ends, where passages keep it free."""
    between = range(floors[upper] - 1, floors[lower], -1)
    return (upper, *(f"{upper}>{lower}@{level}" for level in between), lower)


def _ordered(floors: Mapping[str, int], chains: Sequence[tuple[str, ...]]) -> list[list[str]]:
    """Floors from the lowest: rooms and passages, each near those that it is joined to."""
    rows: list[list[str]] = [[] for _ in range(max(floors.values()) + 1)]
    for name in sorted(floors):
        rows[floors[name]].append(name)
    neighbours: dict[str, set[str]] = defaultdict(set)
    for chain in chains:
        for passage in chain[1:-1]:
            rows[int(passage.rpartition("@")[2])].append(passage)
        for upper, lower in itertools.pairwise(chain):
            neighbours[upper].add(lower)
            neighbours[lower].add(upper)
    for sweep in range(SWEEPS):
        for row in rows if sweep % 2 else reversed(rows):
            place = _placed(rows, 0)
            row.sort(key=lambda n: (_mean([place[m] for m in neighbours[n]], place[n]), n))
    return rows


def _placed(rows: Sequence[Sequence[str]], width: float) -> dict[str, float]:
    """The middle of each node, every row in the middle of *width*."""
    middle = {}
    for row in rows:
        left = (width - sum(_width(node) + GAP for node in row) + GAP) / 2
        for node in row:
            middle[node] = left + _width(node) / 2
            left += _width(node) + GAP
    return middle


def _width(node: str) -> int:
    return PASSAGE if "@" in node else CARD


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _path(chain: Sequence[str], middle: Mapping[str, float], top: Mapping[str, float]) -> str:
    x, y = middle[chain[0]], top[chain[0]] + HEIGHT
    drawn = [f"M{x:.0f} {y:.0f}"]
    for node in chain[1:]:
        nx, ny = middle[node], top[node]
        half = (y + ny) / 2
        drawn.append(f"C{x:.0f} {half:.0f} {nx:.0f} {half:.0f} {nx:.0f} {ny:.0f}")
        x, y = nx, ny + HEIGHT
        if "@" in node:
            drawn.append(f"V{y:.0f}")
    end = f'<circle cx="{x:.0f}" cy="{ny:.0f}" r="3.5" fill="{COLOURS["soft"]}"/>'
    path = (
        f'<path d="{"".join(drawn)}" fill="none" stroke="{COLOURS["soft"]}" stroke-opacity=".55"/>'
    )
    return path + end


def _card(room: Room, x: float, y: float) -> str:
    left = x - CARD / 2
    colour = COLOURS["live" if room.torch else "offline"]
    weight = "2.5" if room.name in DOORS else "1"
    lines = textwrap.wrap(room.about, 33)
    shown = (
        lines
        if len(lines) <= 3
        else [*lines[:2], textwrap.shorten(" ".join(lines[2:]), 31, placeholder=" …")]
    )
    text = "".join(
        f'<text x="{left + 14:.0f}" y="{y + 38 + 14 * row:.0f}" font-size="10.5" '
        f'fill="{COLOURS["soft"]}">{escape(line)}</text>'
        for row, line in enumerate(shown)
    )
    name = f'font-size="14" font-weight="600" fill="{COLOURS["ink"]}">{escape(room.name)}</text>'
    return (
        f'<g><title>{escape(room.about)}</title><rect x="{left:.0f}" y="{y:.0f}" width="{CARD}" '
        f'height="{HEIGHT}" rx="8" fill="{COLOURS["card"]}" stroke="{colour}" '
        f'stroke-width="{weight}"/><rect x="{left:.0f}" y="{y + 10:.0f}" width="5" '
        f'height="{HEIGHT - 20}" fill="{colour}"/><text x="{left + 14:.0f}" y="{y + 21:.0f}" '
        f"{name}{text}</g>"
    )


def _legend(y: float) -> str:
    ink = f'y="{y:.0f}" font-size="11" fill="{COLOURS["soft"]}"'
    parts = [
        f'<rect x="{MARGIN + x}" y="{y - 9:.0f}" width="10" height="10" fill="{COLOURS[colour]}"/>'
        f'<text x="{MARGIN + x + 16}" {ink}>{text}</text>'
        for colour, text, x in (("live", "imports torch", 0), ("offline", "never does", 120))
    ]
    rest = "thick border: people import or type it · a line ends in a dot at what is imported"
    return "".join(parts) + f'<text x="{MARGIN + 230}" {ink}>{rest}</text>'
