"""Generator of what is taken from the code: tables, the picture of the rooms, JSON Schemas.

    python -m scripts.render_docs              rewrite the generated parts in docs/, and the schemas
    python -m scripts.render_docs --check      write nothing; exit 1 where something is stale
    python -m scripts.render_docs --out DIR    write every page with generated parts below DIR

A page holds prose, and tables between `<!-- NAME: generated -->` and `<!-- NAME: end -->`.
The package that is described is the one that Python imports, so a copy of it in the working
directory, or first on PYTHONPATH, is described instead of the repository's.
"""

import argparse
import re
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from scripts.docs import moves
from scripts.docs.picture import architecture
from scripts.docs.replaced import replaced
from scripts.docs.schemas import IDS, ids, schemas
from scripts.docs.tables import TABLES as OF_FAMILIES


ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
SCHEMAS = ROOT / "trainperf" / "schemas"
PICTURE = Path("contributing", "architecture.svg")

TABLES = {**OF_FAMILIES, **moves.tables(), "replaced": replaced}

_PART = re.compile(r"<!-- (\w+): generated -->\n(.*?)<!-- \1: end -->", re.DOTALL)


def pages() -> Mapping[Path, str]:
    """Every page with generated parts as it ought to be, by its path below `docs/`."""
    drawn = {PICTURE: architecture(), **moves.pictures()}
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text(encoding="utf-8")
        if _PART.search(text):
            drawn[page.relative_to(DOCS)] = rendered(text)
    return drawn


def rendered(page: str) -> str:
    """*page* with every part between markers made anew.

    Raises:
        SystemExit: A marker names no table.
    """
    return _PART.sub(
        lambda part: f"<!-- {part[1]}: generated -->\n{_part(part[1])}\n<!-- {part[1]}: end -->",
        page,
    )


@cache
def _part(name: str) -> str:
    if name not in TABLES:
        raise SystemExit(f"marker {name}: no such table; there are {', '.join(TABLES)}")
    return TABLES[name]()


def missing(shown: Mapping[Path, str]) -> list[str]:
    """Tables that no page shows."""
    text = "".join(shown.values())
    return [name for name in TABLES if f"<!-- {name}: generated -->" not in text]


def main() -> int:
    """Rewrite, check, or write elsewhere."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if stale")
    parser.add_argument("--out", type=Path, default=DOCS, help="folder to write to; docs/")
    given = parser.parse_args()
    fresh = pages()
    if lost := missing(fresh):
        raise SystemExit(f"no page shows {', '.join(lost)}: put the markers back")
    files = {given.out / path: text for path, text in fresh.items()}
    if given.out == DOCS:
        files |= {SCHEMAS / name: text for name, text in schemas().items()}
        if not given.check:  # a name that is new is listed with the next rendering
            files[IDS] = ids()
    stale = [file for file, text in files.items() if _differs(file, text)]
    if given.check:
        for file in stale:
            name = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file
            print(f"{name} is stale: run python -m scripts.render_docs", file=sys.stderr)
        return int(bool(stale))
    for file in stale:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(files[file], encoding="utf-8")
    return 0


def _differs(file: Path, text: str) -> bool:
    return not file.is_file() or file.read_text(encoding="utf-8") != text


if __name__ == "__main__":
    sys.exit(main())
