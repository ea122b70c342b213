"""Write the tables of `docs/definitions.md` from the code: a definition lives once, in its meter.

`python scripts/render_docs.py` rewrites the parts between markers and leaves the prose alone;
`--check` only says whether they are up to date.
"""

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from trainperf.analysis.rules import RULES
from trainperf.core.phases import DISQUALIFYING, TAGS
from trainperf.core.steps.records import FACTS
from trainperf.meters import METERS, Meter


DOCUMENT = Path(__file__).parents[1] / "docs" / "definitions.md"

BETTER = {"lower": "↓", "higher": "↑", None: ""}


def readings() -> str:
    """One row per meter, in display order."""
    rows = [
        (f"`{meter.name}`", meter.unit, BETTER[meter.better], meter.scope.value, meaning(meter))
        for meter in METERS
    ]
    return table(("reading", "unit", "better", "steps", "definition"), rows)


def meaning(meter: Meter) -> str:
    """The meter's docstring on one line, with what it needs."""
    needs = ", ".join(f"`{fact}`" for fact in meter.needs)
    return prose(meter.__doc__ or "") + (f" Needs {needs}." if needs else "")


def facts() -> str:
    """One row per fact that a probe can record."""
    rows = [(f"`{fact.name}`", fact.unit, sentence(fact.meaning)) for fact in FACTS.values()]
    return table(("fact of a step", "unit", "meaning"), rows)


def tags() -> str:
    """One row per tag: whether it takes a step out of the steady statistics."""
    rows = [(f"`{tag.label}`", "yes" if tag & DISQUALIFYING else "no") for tag in TAGS]
    return table(("tag", "left out of steady statistics"), rows)


def rules() -> str:
    """One row per rule."""
    rows = [(f"`{rule.__name__}`", prose(rule.__doc__ or "")) for rule in RULES]
    return table(("finding", "when"), rows)


PARTS: Mapping[str, Callable[[], str]] = {
    "readings": readings,
    "facts": facts,
    "tags": tags,
    "rules": rules,
}


def rendered(document: str) -> str:
    """*document* with every generated part made anew."""
    for name, make in PARTS.items():
        begin, end = f"<!-- {name}: generated -->", f"<!-- {name}: end -->"
        pattern = re.compile(f"{re.escape(begin)}\n.*?{re.escape(end)}", re.DOTALL)
        if not pattern.search(document):
            raise SystemExit(f"{DOCUMENT.name}: no part {begin} … {end}; put the markers back")
        part = f"{begin}\n{make()}\n{end}"
        document = pattern.sub(lambda _, part=part: part, document)  # type: ignore[misc]
    return document


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A markdown table."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def prose(docstring: str) -> str:
    """A docstring on one line, fit for a cell."""
    return re.sub(r"\s+", " ", inspect.cleandoc(docstring)).replace("|", "\\|")


def sentence(clause: str) -> str:
    """A clause with a capital and a full stop."""
    return f"{clause[0].upper()}{clause[1:]}."


def main() -> int:
    """Rewrite, or check."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if stale")
    check = parser.parse_args().check
    before = DOCUMENT.read_text(encoding="utf-8")
    after = rendered(before)
    if before == after:
        return 0
    if check:
        print(f"{DOCUMENT.name} is stale: run `python scripts/render_docs.py`", file=sys.stderr)
        return 1
    DOCUMENT.write_text(after, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
