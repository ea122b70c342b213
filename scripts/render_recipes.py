"""Generator of the pages of the recipes, each from what a run of it left.

    python -m scripts.render_recipes              rewrite docs/recipes/
    python -m scripts.render_recipes --check      write nothing; exit 1 where something is stale,
                                                  or shows a figure that its run did not print

A run is kept as `docs/measurements/cpu-2-cores/recipe-NAME.json`:
`python -m recipes.NAME --json docs/measurements/cpu-2-cores/recipe-NAME.json`.
"""

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path

from recipes.cases.case import load
from recipes.cases.markdown import page_of, pictures, unprinted


ROOT = Path(__file__).parents[1]
PAGES = ROOT / "docs" / "recipes"
RUNS = ROOT / "docs" / "measurements" / "cpu-2-cores"


def rendered() -> tuple[Mapping[Path, str], Mapping[str, set[str]]]:
    """Every file below `docs/recipes/` as it ought to be, and figures that no run printed."""
    files: dict[Path, str] = {}
    invented: dict[str, set[str]] = {}
    for kept in sorted(RUNS.glob("recipe-*.json")):
        run = load(kept)
        page = page_of(run, kept.relative_to(ROOT).as_posix())
        files[Path(f"{run.recipe}.md")] = page
        files |= {Path(name): svg for name, svg in pictures(run).items()}
        invented[run.recipe] = unprinted(run, page)
    return files, invented


def stale(files: Mapping[Path, str]) -> list[str]:
    """What differs from what is in the folder, and what is there without a run."""
    there = {path.relative_to(PAGES) for path in PAGES.rglob("*") if path.is_file()}
    differs = [
        path
        for path, text in files.items()
        if path not in there or (PAGES / path).read_text(encoding="utf-8") != text
    ]
    return sorted(path.as_posix() for path in {*differs, *(there - files.keys())})


def main() -> int:
    """Rewrite or check."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if stale")
    given = parser.parse_args()
    files, invented = rendered()
    wrong = {recipe: figures for recipe, figures in invented.items() if figures}
    for recipe, figures in wrong.items():
        print(f"{recipe}: no run printed {', '.join(sorted(figures))}", file=sys.stderr)
    old = stale(files)
    if given.check:
        for name in old:
            print(
                f"docs/recipes/{name} is stale: run python -m scripts.render_recipes",
                file=sys.stderr,
            )
        return int(bool(old or wrong))
    PAGES.mkdir(parents=True, exist_ok=True)
    for name in old:
        if Path(name) in files:
            (PAGES / name).write_text(files[Path(name)], encoding="utf-8")
        else:
            (PAGES / name).unlink()
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
