"""The colours of the pages and of the TensorBoard tab, light and dark: defined only here.

As CSS variables: `--phase-<label>` for the phases of a step, `--line-0` and so on for curves,
`--kind-<kind>` for slices of a timeline, and the neutrals by their own names.  As classes of the
pages: `f`, `b` and a number for the phases in their order; `s`, `g`, `k` and one for lines;
`kind-<kind>` for slices.
"""

from collections.abc import Mapping
from pathlib import Path

from trainperf.core.phases import PHASES


NEUTRALS: Mapping[str, tuple[str, str]] = {
    "page": ("#f5f6f8", "#14171d"),
    "card": ("#ffffff", "#1c2028"),
    "tint": ("#f3f5f9", "#232834"),
    "line": ("#dfe2e8", "#323845"),
    "grid": ("#e8eaef", "#2b303b"),
    "text": ("#1d2330", "#e6e9ef"),
    "quiet": ("#5b6475", "#a3acbd"),
    "accent": ("#2f6bd0", "#7fb0ff"),
    "good": ("#1f7a54", "#5fc79b"),
    "bad": ("#c0392b", "#ff8a7d"),
    "warn": ("#a54e12", "#eb9a5c"),
    "tag": ("#7b8498", "#98a1b3"),
}
"""Light and dark."""

PHASE_COLOURS = (
    ("#d2435a", "#e4657a"),
    ("#ec9a3c", "#e9a655"),
    ("#5b9bf0", "#74adf5"),
    ("#2b5fae", "#4a7fd0"),
    ("#7b5cc4", "#9a80dc"),
    ("#d9b92c", "#dcc24c"),
    ("#3fa38f", "#52b8a3"),
    ("#a3aab8", "#7c8494"),
)
"""Light and dark, by phase."""
_LINES = (
    ("#2f6bd0", "#7fb0ff"),
    ("#d2435a", "#ee7a8d"),
    ("#2d9480", "#52b8a3"),
    ("#ad7a12", "#dcb454"),
    ("#7b5cc4", "#a78eea"),
    ("#c2528f", "#e085b6"),
    ("#58738f", "#93acc6"),
    ("#8a6a4f", "#c2a184"),
)
KINDS = {
    "step": ("#c3c9d6", "#454d5e"),
    "compute": ("#3a76d6", "#5b95ee"),
    "communication": ("#ec9a3c", "#e9a655"),
    "copy": ("#2d9480", "#52b8a3"),
    "idle": ("#f0c3ca", "#5d353d"),
    "operator": ("#7fb0ef", "#4a74ad"),
    "loader": ("#d2435a", "#e4657a"),
    "sync": ("#7b5cc4", "#9a80dc"),
    "other": ("#a3aab8", "#7c8494"),
}

COLOURS = len(_LINES)
"""So many phases and lines: what has more of them begins again."""


def phase_variable(place: int) -> str:
    """The variable of a phase's colour, e.g. `--phase-data_wait`."""
    return f"--phase-{PHASES[place % COLOURS].label}"


def variables() -> str:
    """The style rules that define every colour, by the reader's preference."""
    colours = {f"--{name}": pair for name, pair in NEUTRALS.items()}
    colours |= {phase_variable(place): pair for place, pair in enumerate(PHASE_COLOURS)}
    colours |= {f"--line-{place}": pair for place, pair in enumerate(_LINES)}
    colours |= {f"--kind-{name}": pair for name, pair in KINDS.items()}
    light, dark = (
        " ".join(f"{name}: {pair[mode]};" for name, pair in colours.items()) for mode in (0, 1)
    )
    return (
        f":root {{ color-scheme: light dark; {light} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}\n"
    )


def page_style() -> str:
    """The style sheet of a page: the variables, the rules of `style.css`, a class per colour."""
    rules = (Path(__file__).parent / "style.css").read_text(encoding="utf-8")
    kinds = (
        f".kind-{k} {{ fill: var(--kind-{k}); background: var(--kind-{k}); }}\n" for k in KINDS
    )
    return f"{variables()}\n{rules}" + "".join([*map(_coloured, range(COLOURS)), *kinds])


_INSIDE = """
& { max-width: 68rem; padding: .9rem; border-radius: 10px; text-align: left; }
& table { color: inherit; }
& :is(h1, h2, h3):first-child { margin-top: 0; }
"""
_RESET = "& :not(svg, svg *) { all: revert; box-sizing: border-box; }\n"
"""Notebooks have rules of their own for tables, lists, code and headings."""


def inside_style(kind: str) -> str:
    """The style sheet of a page for an element of the class *kind* in somebody else's page.

    Nested, so that it holds for nothing else there; the class is named three times, so that it
    outweighs the rules which a notebook has for all that a cell shows.
    """
    rules = page_style().replace(":root", "&").replace("\nbody {", "\n& {")
    return f"{f'.{kind}' * 3} {{\n{_RESET}{rules}{_INSIDE}}}\n"


def _coloured(place: int) -> str:
    phase, line = f"var({phase_variable(place)})", f"var(--line-{place})"
    return (
        f".f{place} {{ fill: {phase}; }} .b{place} {{ background: {phase}; }} "
        f".s{place} {{ stroke: {line}; }} .g{place} {{ fill: {line}; }} "
        f".k{place} {{ background: {line}; }}\n"
    )
